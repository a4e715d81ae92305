// Listing, showing and removing checkpoints; collecting what failed attempts left.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/storage_places.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/manifest.h"

namespace ckptd {

v1::CheckpointSummary Coordinator::Impl::SummaryOf(const Job& job,
                                                   const v1::CheckpointRecord& record) const {
  v1::CheckpointSummary summary = record.summary();
  const v1::CheckpointRecord* latest = LatestCheckpoint(job);
  summary.set_latest(latest != nullptr && latest->summary().step() == summary.step());
  return summary;
}

void Coordinator::Impl::ListCheckpoints(const v1::AuthorizedListCheckpoints& request,
                                        Done<v1::ListCheckpointsResponse> done) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  v1::ListCheckpointsResponse response;
  const std::string& wanted = request.request().job();
  Job* only = FindJob(wanted);
  if (only != nullptr) {
    absl::Status status = CheckOwner(*only, request.user_id());
    if (!status.ok()) return deferred.Answer(std::move(done), status);
  }
  for (const auto& [name, job] : jobs_) {
    if (!wanted.empty() && name != wanted) continue;
    if (!CheckOwner(job, request.user_id()).ok()) continue;  // others' jobs are not listed
    for (const auto& [step, record] : job.checkpoints) {
      *response.add_checkpoints() = SummaryOf(job, record);
    }
  }
  deferred.Answer(std::move(done),
                  absl::StatusOr<v1::ListCheckpointsResponse>(std::move(response)));
}

void Coordinator::Impl::ShowCheckpoint(const v1::AuthorizedShowCheckpoint& request,
                                       Done<v1::ShowCheckpointResponse> done) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  const std::string& name = request.request().job();
  Job* job = FindJob(name);
  absl::Status status = job == nullptr ? absl::NotFoundError(absl::StrCat("there is no job ", name))
                                       : CheckOwner(*job, request.user_id());
  if (!status.ok()) return deferred.Answer(std::move(done), status);
  absl::StatusOr<uint64_t> step = ChooseStep(*job, request.request().selector());
  if (!step.ok()) return deferred.Answer(std::move(done), step.status());
  const v1::CheckpointRecord& record = job->checkpoints.at(*step);
  v1::ShowCheckpointResponse response;
  *response.mutable_summary() = SummaryOf(*job, record);
  response.set_job_folder(FolderOf(record));
  if (request.request().without_manifest()) {
    return deferred.Answer(std::move(done),
                           absl::StatusOr<v1::ShowCheckpointResponse>(std::move(response)));
  }
  auto shared_done = std::make_shared<Done<v1::ShowCheckpointResponse>>(std::move(done));
  status =
      planner_.Submit([this, shared_done, response = std::move(response), step = *step]() mutable {
        const std::string path = ManifestPath(response.job_folder(), step);
        auto bytes = file_system_.ReadWhole(path, kMaxManifestBytes);
        if (!bytes.ok()) return (*shared_done)(bytes.status());
        auto manifest = DecodeManifest(*bytes, path);
        if (!manifest.ok()) return (*shared_done)(manifest.status());
        response.set_manifest(manifest->SerializeAsString());
        (*shared_done)(std::move(response));
      });
  if (!status.ok()) deferred.Answer(std::move(*shared_done), status);
}

void Coordinator::Impl::RemoveCheckpoints(const v1::AuthorizedRemoveCheckpoints& request,
                                          Done<v1::RemoveCheckpointsResponse> done) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  const std::string& name = request.request().job();
  Job* job = FindJob(name);
  absl::Status status = job == nullptr ? absl::NotFoundError(absl::StrCat("there is no job ", name))
                                       : CheckOwner(*job, request.user_id());
  if (status.ok() && stopping_) status = absl::UnavailableError("the coordinator is shutting down");
  if (!status.ok()) return deferred.Answer(std::move(done), status);
  auto chosen = ChooseForRemoval(*job, request.request());
  if (!chosen.ok()) return deferred.Answer(std::move(done), chosen.status());
  if (request.request().dry_run()) {
    v1::RemoveCheckpointsResponse response;
    for (const v1::CheckpointRecord& record : *chosen) {
      *response.add_removed() = SummaryOf(*job, record);
    }
    return deferred.Answer(std::move(done),
                           absl::StatusOr<v1::RemoveCheckpointsResponse>(std::move(response)));
  }
  // From here on no load is given them.
  for (const v1::CheckpointRecord& record : *chosen)
    job->checkpoints.erase(record.summary().step());
  auto shared_done = std::make_shared<Done<v1::RemoveCheckpointsResponse>>(std::move(done));
  status = writer_.Submit([this, name, records = *chosen, shared_done] {
    RunRemoval(name, records, std::move(*shared_done));
  });
  if (status.ok()) return;
  for (v1::CheckpointRecord& record : *chosen) {
    const uint64_t step = record.summary().step();
    job->checkpoints[step] = std::move(record);
  }
  deferred.Answer(std::move(*shared_done), status);
}

absl::StatusOr<std::vector<v1::CheckpointRecord>> Coordinator::Impl::ChooseForRemoval(
    const Job& job, const v1::RemoveCheckpointsRequest& request) const {
  std::vector<v1::CheckpointRecord> chosen;
  switch (request.which_case()) {
    case v1::RemoveCheckpointsRequest::kStep: {
      auto it = job.checkpoints.find(request.step());
      if (it == job.checkpoints.end()) {
        return absl::NotFoundError(absl::StrCat("there is no checkpoint of ",
                                                CheckpointName(job.name, request.step()),
                                                "; the job has ", DescribeSteps(job)));
      }
      chosen.push_back(it->second);
      break;
    }
    case v1::RemoveCheckpointsRequest::kAfterStep:
      for (auto it = job.checkpoints.upper_bound(request.after_step()); it != job.checkpoints.end();
           ++it) {
        chosen.push_back(it->second);
      }
      break;
    default:
      return absl::InvalidArgumentError(
          "a removal names a step, or the step after which to remove");
  }
  for (const v1::CheckpointRecord& record : chosen) {
    const uint64_t step = record.summary().step();
    const bool saved = std::any_of(job.rounds.begin(), job.rounds.end(),
                                   [&](const auto& it) { return it.second->round.step() == step; });
    if (!saved && !IsBeingLoaded(job, step)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(CheckpointName(job.name, step), " is being ", saved ? "overwritten" : "loaded",
                     "; nothing was removed, try again when that is done"));
  }
  return chosen;
}

void Coordinator::Impl::RunRemoval(const std::string& name,
                                   const std::vector<v1::CheckpointRecord>& records,
                                   Done<v1::RemoveCheckpointsResponse> done) {
  v1::RemoveCheckpointsResponse response;
  absl::Status first_error;
  for (const v1::CheckpointRecord& record : records) {
    absl::Status status = RemoveOne(name, record);
    if (status.ok()) *response.add_removed() = record.summary();
    first_error.Update(status);
  }
  {
    absl::MutexLock lock(&mutex_);
    PublishJobState(*FindJob(name));
  }
  if (!first_error.ok()) return done(first_error);
  done(std::move(response));
}

absl::Status Coordinator::Impl::RemoveOne(const std::string& name,
                                          const v1::CheckpointRecord& record) {
  const uint64_t step = record.summary().step();
  absl::Status status = ResolveDoubtOf(name);
  if (status.ok()) status = RemoveManifest(file_system_, *catalog_, FolderOf(record), record);
  FilePaths named_by_others;
  {
    absl::MutexLock lock(&mutex_);
    Job& job = *FindJob(name);
    if (!status.ok()) {
      // It may still be there; a commit of the same step may have come in between.
      job.checkpoints.try_emplace(step, record);
      return status;
    }
    named_by_others = FilesNamedByOthers(job, record);
  }
  probe_.CheckpointRemoved(name, step);
  status = RemoveDataFiles(file_system_, FolderOf(record), record, named_by_others);
  if (!status.ok()) {
    probe_.Warning(absl::StrCat(CheckpointName(name, step),
                                " is removed, but files of it are left: ", status.message()));
  }
  return absl::OkStatus();
}

void Coordinator::Impl::ScheduleCollection(absl::Duration in) {
  (void)SetAlarm(clock_.Now() + in, [](Impl& impl) { impl.StartCollection(); });
}

// One task per job: a commit waits for one job's folders at most.
void Coordinator::Impl::StartCollection() {
  std::vector<std::string> names;
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return;
    for (const auto& [name, job] : jobs_) names.push_back(name);
  }
  for (const std::string& name : names) {
    absl::Status status = writer_.Submit([this, name] { CollectJob(name); });
    if (!status.ok()) {
      probe_.Warning(std::string(Annotate(status, "collecting old files").message()));
      break;
    }
  }
  ScheduleCollection(options_.collection_interval);
}

// Is somebody still to report this attempt's files? Of a world that is not settled
// nodes may hold attempts that were never heard of here, or not since a restart: each
// has reached its own deadline after the longest wait.
bool Coordinator::Impl::MayBeReported(const Job& job, AttemptKey attempt,
                                      absl::Time modified) const {
  if (job.rounds.count(attempt) > 0) return true;
  if (job.worlds.count(attempt.epoch) == 0) return false;
  const bool failed = std::any_of(job.failures.begin(), job.failures.end(),
                                  [&](const auto& it) { return it.first == attempt; });
  return !failed && modified + options_.longest_wait > clock_.Now();
}

void Coordinator::Impl::CollectJob(const std::string& name) {
  if (absl::Status status = ResolveDoubtOf(name); !status.ok()) {
    return probe_.Warning(std::string(Annotate(status, "collecting old files").message()));
  }
  FilePaths live;
  {
    absl::MutexLock lock(&mutex_);
    Job* job = FindJob(name);
    if (job == nullptr) return;
    // No attempt equals this one: all are others.
    live = FilesNamedByOthers(*job, v1::CheckpointRecord());
  }
  // Commits and removals run on this thread too: what is live stays so meanwhile.
  CollectionRules rules;
  rules.older_than = clock_.Now() - options_.failed_attempt_age;
  rules.is_live = [&live](const std::string& path) { return live.count(path) > 0; };
  rules.is_in_flight = [this, &name](uint64_t step, AttemptKey attempt, absl::Time modified) {
    absl::MutexLock lock(&mutex_);
    Job* job = FindJob(name);
    return job != nullptr && (IsBeingLoaded(*job, step) || MayBeReported(*job, attempt, modified));
  };
  for (const auto& [store, folder] : options_.stores) {
    rules.is_known = [this, &name, &store = store](uint64_t step) {
      absl::MutexLock lock(&mutex_);
      const Job& job = *FindJob(name);
      auto it = job.checkpoints.find(step);
      return it != job.checkpoints.end() && it->second.summary().store() == store;
    };
    const Collected collected = CollectLeftovers(file_system_, JobFolder(folder, name), rules);
    if (collected.files > 0) probe_.FilesCollected(collected.files, collected.bytes);
    if (!collected.first_error.ok()) {
      probe_.Warning(absl::StrCat("collecting old files of job ", name, ": ",
                                  collected.first_error.message()));
    }
  }
}

}  // namespace ckptd
