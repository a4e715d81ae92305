// Planning a load, on the planner's threads.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/load_planner.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/stored_manifest.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

absl::StatusOr<SavedState> ReadSavedState(const Catalog& catalog, const std::string& job,
                                          uint64_t step, const std::set<std::string>& names) {
  const std::unique_ptr<Catalog::View> view = catalog.MakeView();
  SavedState saved;
  auto record = view->Checkpoint(job, step);
  if (!record.ok()) return record.status();
  saved.record = *std::move(record);
  auto index = view->Names(job, step);
  if (!index.ok()) return index.status();
  saved.names = *std::move(index);
  std::vector<std::string> wanted(names.begin(), names.end());
  while (!wanted.empty()) {
    const std::string name = std::move(wanted.back());
    wanted.pop_back();
    if (saved.entries.contains(name)) continue;
    auto entry = view->Find(job, step, name);
    if (!entry.ok()) return entry.status();
    if (!entry->has_value()) continue;
    const std::string& alias = (**entry).tensor().alias_of();
    if ((**entry).has_tensor() && !alias.empty()) wanted.push_back(alias);
    saved.entries.emplace(name, **std::move(entry));
  }
  return saved;
}

}  // namespace

void Coordinator::Impl::RunLoadPlan(const std::string& name, LoadKey key, uint64_t step) {
  const absl::Time begin = clock_.Now();
  std::vector<v1::PlanLoadRequest> requests;
  uint32_t world_size = 1;
  {
    absl::MutexLock lock(&mutex_);
    Job& job = *FindJob(name);
    auto it = job.loads.find(key);
    if (it == job.loads.end()) return;  // failed meanwhile
    if (it->second.world != nullptr) world_size = it->second.world->size();
    for (const auto& [node, call] : it->second.calls) requests.push_back(call.request);
  }
  std::vector<const v1::PlanLoadRequest*> pointers;
  pointers.reserve(requests.size());
  for (const v1::PlanLoadRequest& request : requests) pointers.push_back(&request);
  absl::StatusOr<std::vector<v1::PlanLoadResponse>> responses;
  auto saved = ReadSavedState(*catalog_, name, step, WantedNames(pointers));
  absl::Status status = saved.status();
  if (status.ok()) status = CheckManifestOf(saved->record);
  if (status.ok()) {
    responses = ckptd::PlanLoad(*saved, pointers, world_size);
  } else {
    responses = status;
  }
  if (!responses.ok()) {
    responses = Annotate(responses.status(), absl::StrCat("loading ", CheckpointName(name, step)));
  }
  probe_.LoadPlanned(absl::ToDoubleSeconds(clock_.Now() - begin));
  LoadIsPlanned(name, key, requests, std::move(responses));
}

// Where the step is being overwritten, or has just been, another manifest is right: the
// files that `record` names stay as long as they are being loaded.
absl::Status Coordinator::Impl::CheckManifestOf(const v1::CheckpointRecord& record) {
  absl::Status status = CheckStoredManifest(file_system_, FolderOf(record), record);
  if (status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  const Job& job = *FindJob(record.summary().job());
  const uint64_t step = record.summary().step();
  const auto current = job.checkpoints.find(step);
  const bool replaced = current != job.checkpoints.end() &&
                        current->second.manifest_frame() != record.manifest_frame();
  const bool being_replaced = std::any_of(
      job.rounds.begin(), job.rounds.end(),
      [step](const auto& it) { return it.second->committing && it.second->round.step() == step; });
  return replaced || being_replaced ? absl::OkStatus() : status;
}

void Coordinator::Impl::LoadIsPlanned(const std::string& name, LoadKey key,
                                      const std::vector<v1::PlanLoadRequest>& requests,
                                      absl::StatusOr<std::vector<v1::PlanLoadResponse>> responses) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job& job = *FindJob(name);
  auto it = job.loads.find(key);
  if (it == job.loads.end()) return;
  if (!responses.ok()) return FailLoad(job, key, responses.status(), deferred);
  LoadState& load = it->second;
  load.planning = false;
  load.planned = true;
  CancelAlarm(load.alarm);
  for (size_t i = 0; i < requests.size(); ++i) {
    load.responses[requests[i].node()] = std::move((*responses)[i]);
  }
  for (auto& [node, call] : std::exchange(load.calls, {})) {
    v1::PlanLoadResponse& response = load.responses.at(node);
    // A reader that asks again is another load: who it is, is all that is kept.
    deferred.Answer(std::move(call.done),
                    absl::StatusOr<v1::PlanLoadResponse>(
                        load.world == nullptr ? std::exchange(response, {}) : response));
  }
}

}  // namespace ckptd
