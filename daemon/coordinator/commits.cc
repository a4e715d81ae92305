// From the last node's report to the checkpoint.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/commit.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/manifest_builder.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "proto/rpc/tags.h"
#include "storage/format/checksum.h"

namespace ckptd {

// What the writer needs, taken out of the round.
struct Coordinator::Impl::CommitWork {
  std::string job;
  AttemptKey attempt;
  uint64_t step = 0;
  uint32_t world_size = 0;
  std::string store;
  bool overwrite = false;
  std::string plan_id;
  std::shared_ptr<const PlannedSave> plan;  // null: to be made from the layouts
  std::vector<std::string> layouts;
  std::vector<v1::CommitSaveRequest> reports;
  absl::Time begun;
};

void Coordinator::Impl::StartCommit(Job& job, RoundState& state, Deferred& deferred) {
  CancelAlarm(state.alarm);
  auto work = std::make_shared<CommitWork>();
  work->plan_id = state.round.FingerprintPlanId();
  const AttemptKey attempt = state.round.attempt();
  for (const auto& [node, ranks] : state.round.world().ranks_of_node) {
    if (state.round.PlanIdOf(node) == work->plan_id) continue;
    job.plan = nullptr;
    return FailRound(job, attempt,
                     absl::FailedPreconditionError(absl::StrCat(
                         state.round.Describe(), ": ", RanksToString(ranks), " (node ", node,
                         ") saved by another plan than the ranks' layouts ask for; the next save "
                         "is planned anew")),
                     deferred);
  }
  work->job = job.name;
  work->attempt = attempt;
  work->step = state.round.step();
  work->world_size = state.round.world().size();
  work->store = state.round.world().store;
  work->overwrite = state.overwrite;
  work->plan = state.round.plan();
  work->layouts = state.round.TakeLayouts();
  work->reports = state.round.TakeReports();
  work->begun = clock_.Now();
  state.committing = true;
  absl::Status status = writer_.Submit([this, work] { RunCommit(work); });
  if (status.ok()) return;
  state.committing = false;
  FailRound(job, attempt, status, deferred);
}

void Coordinator::Impl::RunCommit(std::shared_ptr<CommitWork> work) {
  CommitFinished(*work, WriteCheckpoint(*work));
}

// On the writer. A job of which a commit is in doubt is left alone until that is resolved.
absl::Status Coordinator::Impl::ResolveDoubtOf(const std::string& name) {
  auto it = doubts_.find(name);
  if (it == doubts_.end()) return absl::OkStatus();
  v1::JobRecord record;
  {
    absl::MutexLock lock(&mutex_);
    record = MakeJobRecord(*FindJob(name));
  }
  absl::Status status = ResolveDoubt(file_system_, *catalog_, record, it->second);
  if (status.ok()) {
    doubts_.erase(it);
    return absl::OkStatus();
  }
  return Annotate(
      status,
      absl::StrCat("an earlier commit of ", CheckpointName(name, it->second.commit.manifest.step()),
                   " could not be taken back; until it is, this job's checkpoints stay "
                   "as they are"));
}

absl::StatusOr<v1::CheckpointRecord> Coordinator::Impl::WriteCheckpoint(CommitWork& work) {
  if (absl::Status status = ResolveDoubtOf(work.job); !status.ok()) return status;
  if (work.plan == nullptr) {
    auto plan = MakePlannedSave(work.layouts);
    if (!plan.ok()) return plan.status();
    work.plan = *std::move(plan);
  }
  if (work.plan->plan_id != work.plan_id) {
    return absl::InternalError("the plan at hand is not the one that was saved by");
  }
  Commit commit = MakeCommit(work);
  std::vector<const v1::CommitSaveRequest*> reports;
  for (const v1::CommitSaveRequest& report : work.reports) {
    reports.push_back(&report);
    commit.manifest.mutable_tags()->insert(report.tags().begin(), report.tags().end());
  }
  // Nodes may have named different ones.
  absl::Status status = CheckTags(commit.manifest.tags());
  if (status.ok()) status = FillManifest(work.plan->plan, reports, commit.manifest);
  if (!status.ok()) return status;
  std::optional<CommitDoubt> doubt;
  auto record = CommitCheckpoint(file_system_, *catalog_, commit, doubt);
  if (doubt.has_value()) doubts_.insert_or_assign(work.job, *std::move(doubt));
  return record;
}

// All of the manifest but what was written.
Commit Coordinator::Impl::MakeCommit(const CommitWork& work) {
  absl::MutexLock lock(&mutex_);
  Job& job = *FindJob(work.job);
  Commit commit{.job = MakeJobRecord(job),
                .store = work.store,
                .store_folder = options_.stores.at(work.store),
                .overwrite = work.overwrite};
  v1::Manifest& manifest = commit.manifest;
  manifest.set_job(work.job);
  manifest.set_step(work.step);
  manifest.mutable_attempt()->set_epoch(work.attempt.epoch);
  manifest.mutable_attempt()->set_save_number(work.attempt.save_number);
  manifest.set_world_size(work.world_size);
  manifest.set_committed_unix_microseconds(absl::ToUnixMicros(clock_.Now()));
  *manifest.mutable_owner() = job.owner;
  auto loaded = job.loaded_step.find(work.attempt.epoch);
  if (loaded != job.loaded_step.end()) manifest.set_parent_step(loaded->second);
  manifest.set_software_version(options_.software_version);
  manifest.set_chunk_bytes(kChunkBytes);
  return commit;
}

void Coordinator::Impl::CommitFinished(const CommitWork& work,
                                       absl::StatusOr<v1::CheckpointRecord> record) {
  v1::CheckpointRecord replaced;
  FilePaths kept;
  {
    Deferred deferred;
    absl::MutexLock lock(&mutex_);
    Job& job = *FindJob(work.job);
    RoundState& state = *job.rounds.at(work.attempt);
    if (!record.ok()) {
      state.committing = false;
      const absl::Status status = Annotate(record.status(), state.round.Describe());
      return FailRound(job, work.attempt, status, deferred);
    }
    job.plan = work.plan;
    job.plan_epoch = work.attempt.epoch;
    v1::CheckpointRecord& current = job.checkpoints[work.step];
    // Files that a load still reads are left to collection.
    if (!IsBeingLoaded(job, work.step)) replaced = std::move(current);
    current = *record;
    kept = FilesNamedByOthers(job, replaced);
    for (auto& [node, done] : state.commit_calls) {
      deferred.Answer(std::move(done),
                      absl::StatusOr<v1::CommitSaveResponse>(v1::CommitSaveResponse()));
    }
    EraseRound(job, work.attempt);
    CommittedSave saved{.job = work.job,
                        .step = work.step,
                        .bytes = record->summary().size_bytes(),
                        .committed = clock_.Now(),
                        .commit_seconds = absl::ToDoubleSeconds(clock_.Now() - work.begun)};
    for (const v1::CommitSaveRequest& report : work.reports) {
      saved.blocked_seconds = std::max(saved.blocked_seconds, report.blocked_seconds());
      saved.snapshot_seconds = std::max(saved.snapshot_seconds, report.snapshot_seconds());
      saved.persist_seconds = std::max(saved.persist_seconds, report.persist_seconds());
    }
    probe_.SaveCommitted(saved);
    PublishJobState(job);
    TrySettle(job, deferred);
  }
  if (replaced.files().empty()) return;
  const absl::Status status = RemoveReplacedFiles(file_system_, FolderOf(replaced), replaced, kept);
  if (!status.ok()) probe_.Warning(std::string(status.message()));
}

}  // namespace ckptd
