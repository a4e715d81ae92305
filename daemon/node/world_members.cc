// Who is in which world, and what is known of its job.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/worlds.h"

namespace ckptd {

absl::Status CheckWhole(const WorldView& world) {
  for (const WorldMember& member : world.members) {
    if (member.alive) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", member.rank, " (process ", member.process_id, ") of job ", world.job,
                     " has ended: the world is not whole, start the run again"));
  }
  return absl::OkStatus();
}

void Worlds::Register(const Joiner& joiner, const v1::JoinWorldResponse& answer) {
  const v1::JoinRequest& request = joiner.request;
  if (!joiner.alive) return;
  Job& job = jobs_[request.job()];
  const uint64_t epoch = answer.epoch();
  if (epoch > job.newest_epoch) {
    job.newest_epoch = epoch;
    for (auto it = job.worlds.begin(); it != job.worlds.end();) {
      const bool superseded = it->first.first != 0 && it->first.first < epoch;
      it = superseded ? job.worlds.erase(it) : std::next(it);
    }
  }
  // Of an older epoch: remembered for nothing, it will be refused anyway.
  if (epoch != 0 && epoch < job.newest_epoch) return;
  World& world = job.worlds[{epoch, epoch == 0 ? joiner.session->id : 0}];
  world.store = request.store();
  world.world_size = request.world_size();
  world.owner = {joiner.session->user_id, joiner.session->group_id};
  world.members[request.rank()] = {.rank = request.rank(),
                                   .session = joiner.session->id,
                                   .process_id = joiner.session->process_id};
  job.committed_steps.clear();
  job.committed_steps.insert(answer.committed_steps().begin(), answer.committed_steps().end());
}

// A world without a living member is forgotten.
void Worlds::EndMembers(SessionId session) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    for (auto world = job->second.worlds.begin(); world != job->second.worlds.end();) {
      bool any_alive = false;
      for (auto& [rank, member] : world->second.members) {
        if (member.session == session) member.alive = false;
        any_alive |= member.alive;
      }
      world = any_alive ? std::next(world) : job->second.worlds.erase(world);
    }
    job = job->second.worlds.empty() ? jobs_.erase(job) : std::next(job);
  }
}

absl::StatusOr<WorldView> Worlds::Find(const Session& session, const std::string& job,
                                       uint64_t epoch) const {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  const std::pair<uint64_t, SessionId> key(epoch, epoch == 0 ? session.id : 0);
  if (found != jobs_.end() && epoch != 0 && epoch < found->second.newest_epoch) {
    return absl::FailedPreconditionError(absl::StrCat(
        "epoch ", epoch, " of job ", job, " is over: epoch ", found->second.newest_epoch,
        " has begun; this process is left over from an older run"));
  }
  if (found != jobs_.end()) {
    if (auto world = found->second.worlds.find(key); world != found->second.worlds.end()) {
      WorldView view{.job = job,
                     .store = world->second.store,
                     .epoch = epoch,
                     .world_size = world->second.world_size,
                     .owner = world->second.owner};
      bool is_member = false;
      for (const auto& [rank, member] : world->second.members) {
        view.members.push_back(member);
        if (member.session != session.id) continue;
        is_member = true;
        view.rank = rank;
      }
      if (is_member) return view;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("process ", session.process_id, " has not joined epoch ", epoch, " of job ",
                   job.substr(0, 128), " on node ", options_.node_name, ": join first"));
}

bool Worlds::HasJoined(SessionId session, const std::string& job) const {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  for (const auto& [key, world] : found->second.worlds) {
    for (const auto& [rank, member] : world.members) {
      if (member.session == session && member.alive) return true;
    }
  }
  return false;
}

bool Worlds::IsCommitted(const std::string& job, uint64_t step) const {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.committed_steps.contains(step);
}

void Worlds::SetCommitted(const std::string& job, uint64_t step, bool committed) {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  if (committed) {
    found->second.committed_steps.insert(step);
  } else {
    found->second.committed_steps.erase(step);
  }
}

void Worlds::Describe(SessionId session, v1::SessionStatus& status) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, job] : jobs_) {
    for (const auto& [key, world] : job.worlds) {
      for (const auto& [rank, member] : world.members) {
        if (member.session != session) continue;
        status.set_job(name);
        status.set_rank(rank);
        status.set_epoch(key.first);
        status.set_copy_path("host lease");
      }
    }
  }
}

}  // namespace ckptd
