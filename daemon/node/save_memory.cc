#include "daemon/node/save_memory.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace ckptd {

const SaveMemory::World* SaveMemory::Find(const std::string& job, uint64_t epoch) const {
  auto found = worlds_.find({job, epoch});
  return found == worlds_.end() ? nullptr : &found->second;
}

SaveMemory::World& SaveMemory::Remember(const WorldView& world, SessionId session) {
  World& remembered = worlds_[{world.job, world.epoch}];
  remembered.sessions.insert(session);
  return remembered;
}

CheckedLayoutPtr SaveMemory::FindLayout(const WorldView& world,
                                        const std::string& fingerprint) const {
  const World* remembered = Find(world.job, world.epoch);
  if (remembered == nullptr) return nullptr;
  auto layouts = remembered->layouts.find(world.rank);
  if (layouts == remembered->layouts.end()) return nullptr;
  for (const CheckedLayoutPtr& known : layouts->second) {
    if (known->fingerprint == fingerprint) return known;
  }
  return nullptr;
}

absl::Status SaveMemory::AddLayout(const WorldView& world, SessionId session,
                                   const CheckedLayoutPtr& layout) {
  std::deque<CheckedLayoutPtr>& layouts = Remember(world, session).layouts[world.rank];
  const bool replaces = layouts.size() >= kCachedLayoutsPerRank;
  const uint64_t freed = replaces ? layouts.back()->serialized.size() : 0;
  const uint64_t bytes = layout_bytes_ - freed + layout->serialized.size();
  if (bytes > most_layout_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the layouts of all ranks on this node would have ", bytes, " bytes, more than the ",
        most_layout_bytes_, " that it keeps: save fewer tensors, or run fewer jobs here"));
  }
  if (replaces) layouts.pop_back();
  layouts.push_front(layout);
  layout_bytes_ = bytes;
  return absl::OkStatus();
}

NodePlanPtr SaveMemory::Plan(const std::string& job, uint64_t epoch) const {
  const World* remembered = Find(job, epoch);
  return remembered == nullptr ? nullptr : remembered->plan;
}

void SaveMemory::SetPlan(const std::string& job, uint64_t epoch, NodePlanPtr plan) {
  auto found = worlds_.find({job, epoch});
  if (found != worlds_.end()) found->second.plan = std::move(plan);
}

absl::Status SaveMemory::CheckSaveNumber(const WorldView& world, uint64_t number) const {
  const World* remembered = Find(world.job, world.epoch);
  if (remembered == nullptr) return absl::OkStatus();
  auto last = remembered->last_save_number.find(world.rank);
  if (last == remembered->last_save_number.end() || number > last->second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rank ", world.rank, " has used save number ",
                                                 last->second, " already: numbers must grow"));
}

void SaveMemory::UseSaveNumber(const WorldView& world, SessionId session, uint64_t number) {
  Remember(world, session).last_save_number[world.rank] = number;
}

std::map<SaveMemory::Key, SaveMemory::World>::iterator SaveMemory::Forget(
    std::map<Key, World>::iterator world) {
  for (const auto& [rank, layouts] : world->second.layouts) {
    for (const CheckedLayoutPtr& layout : layouts) layout_bytes_ -= layout->serialized.size();
  }
  return worlds_.erase(world);
}

void SaveMemory::ForgetOlderEpochs(const std::string& job, uint64_t epoch) {
  auto it = worlds_.lower_bound({job, 0});
  while (it != worlds_.end() && it->first.first == job && it->first.second < epoch) {
    it = Forget(it);
  }
}

void SaveMemory::SessionEnded(SessionId session) {
  for (auto it = worlds_.begin(); it != worlds_.end();) {
    it->second.sessions.erase(session);
    it = it->second.sessions.empty() ? Forget(it) : std::next(it);
  }
}

}  // namespace ckptd
