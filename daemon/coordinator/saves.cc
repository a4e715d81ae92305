// Planning, gathering and committing saves.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/commit.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/fingerprint.h"
#include "daemon/coordinator/manifest_builder.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/storage_places.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"

namespace ckptd {
namespace {

absl::Status CheckAddress(const std::string& job, const std::string& node,
                          const v1::Attempt& attempt) {
  if (absl::Status status = ValidateJobName(job); !status.ok()) return status;
  if (absl::Status status = ValidateNodeName(node); !status.ok()) return status;
  if (attempt.epoch() == 0 || attempt.save_number() == 0) {
    return absl::InvalidArgumentError(absl::StrCat("epoch ", attempt.epoch(), ", save number ",
                                                   attempt.save_number(),
                                                   " name no attempt: both count from 1"));
  }
  return absl::OkStatus();
}

// The node's own report, resent after the commit.
bool IsCommitted(const Job& job, AttemptKey attempt, uint64_t step) {
  auto it = job.checkpoints.find(step);
  return it != job.checkpoints.end() && KeyOf(it->second.summary().attempt()) == attempt;
}

}  // namespace

// The job that a call's attempt belongs to, if that attempt may still go on.
absl::StatusOr<Job*> Coordinator::Impl::JobOfSave(const SaveAddress& address) {
  if (stopping_) return absl::UnavailableError("the coordinator is shutting down");
  Job* job = FindJob(address.job);
  if (job == nullptr || job->table.current() == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", address.job, " has no world here: join first"));
  }
  const uint64_t epoch = address.attempt.epoch;
  if (epoch > job->current_epoch()) {
    return absl::FailedPreconditionError(absl::StrCat("job ", address.job, " has no epoch ", epoch,
                                                      " yet, the newest is ",
                                                      job->current_epoch()));
  }
  for (const auto& [attempt, status] : job->failures) {
    if (attempt == address.attempt) return status;
  }
  const bool settled = epoch <= job->settled_epoch || job->worlds.count(epoch) == 0 ||
                       (epoch < job->current_epoch() && job->settling.recording);
  if (settled && !IsCommitted(*job, address.attempt, address.step)) {
    return absl::AbortedError(absl::StrCat(
        "attempt ", AttemptName(epoch, address.attempt.save_number), " of job ", address.job,
        " is of epoch ", epoch, ", which is settled: epoch ", job->current_epoch(), " has begun"));
  }
  return job;
}

absl::StatusOr<RoundState*> Coordinator::Impl::FindOrStartRound(Job& job,
                                                                const SaveAddress& address) {
  auto it = job.rounds.find(address.attempt);
  if (it != job.rounds.end()) {
    if (it->second->round.step() == address.step) return it->second.get();
    return absl::InvalidArgumentError(absl::StrCat(it->second->round.Describe(), ", node ",
                                                   address.node, " calls it step ", address.step));
  }
  if (job.rounds.size() >= kMaxRoundsPerJob) {
    return absl::ResourceExhaustedError(
        absl::StrCat(job.rounds.size(), " saves of job ", job.name,
                     " are under way; wait for some to become durable"));
  }
  for (const auto& [attempt, other] : job.rounds) {
    if (other->round.step() != address.step) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(CheckpointName(job.name, address.step), " is being saved already by attempt ",
                     AttemptName(attempt.epoch, attempt.save_number),
                     "; wait until that is durable or has failed"));
  }
  if (!job.worlds.at(address.attempt.epoch)->HasNode(address.node)) {
    return absl::InvalidArgumentError(absl::StrCat("node ", address.node, " has no rank in epoch ",
                                                   address.attempt.epoch, " of job ", job.name));
  }
  return &StartRound(job, address.attempt, address.step);
}

RoundState& Coordinator::Impl::StartRound(Job& job, AttemptKey attempt, uint64_t step) {
  auto& state = job.rounds[attempt];
  state = std::make_unique<RoundState>(
      SaveRound(job.name, step, attempt, job.worlds.at(attempt.epoch)));
  ++saves_under_way_;
  return *state;
}

absl::Status Coordinator::Impl::CheckNotCommitted(const Job& job, const SaveAddress& address,
                                                  bool overwrite) {
  auto it = job.checkpoints.find(address.step);
  if (it == job.checkpoints.end()) return absl::OkStatus();
  const std::string& its_store = it->second.summary().store();
  const std::string& our_store = job.worlds.at(address.attempt.epoch)->store;
  if (overwrite && its_store == our_store) return absl::OkStatus();
  if (overwrite) {
    return absl::FailedPreconditionError(
        absl::StrCat(CheckpointName(job.name, address.step), " is in store ", its_store,
                     ", this world saves to ", our_store, "; remove it there first"));
  }
  return absl::AlreadyExistsError(absl::StrCat(CheckpointName(job.name, address.step),
                                               " is committed already; save with overwrite to "
                                               "replace it"));
}

absl::Status Coordinator::Impl::FailUnlessAgreed(Job& job, RoundState& state, Deferred& deferred) {
  const PlannedSave* known =
      state.round.plan() != nullptr ? state.round.plan().get() : job.plan.get();
  absl::Status status = state.round.CheckAgreement(known);
  if (status.ok()) return status;
  job.plan = nullptr;
  status = Annotate(status, state.round.Describe());
  FailRound(job, state.round.attempt(), status, deferred);
  return status;
}

void Coordinator::Impl::PlanSave(const v1::PlanSaveRequest& request,
                                 Done<v1::PlanSaveResponse> done) {
  absl::Status status = CheckAddress(request.job(), request.node(), request.attempt());
  if (!status.ok()) return done(status);
  const SaveAddress address{request.job(), request.node(), KeyOf(request.attempt()),
                            request.step()};
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Job*> found = JobOfSave(address);
  if (!found.ok()) return deferred.Answer(std::move(done), found.status());
  Job& job = **found;
  if (address.attempt.epoch < job.current_epoch()) {
    status = absl::FailedPreconditionError(
        absl::StrCat("epoch ", address.attempt.epoch, " of job ", job.name,
                     " was superseded by epoch ", job.current_epoch(), ": end this left-over run"));
  } else if (job.rounds.count(address.attempt) == 0) {
    status = CheckServing();
  }
  if (status.ok()) status = CheckNotCommitted(job, address, request.overwrite());
  if (!status.ok()) return deferred.Answer(std::move(done), status);
  absl::StatusOr<RoundState*> state = FindOrStartRound(job, address);
  if (!state.ok()) return deferred.Answer(std::move(done), state.status());
  SaveRound& round = (*state)->round;
  if (status = round.GiveLayouts(request); !status.ok()) {
    if (absl::IsFailedPrecondition(status)) FailRound(job, address.attempt, status, deferred);
    DropIfUntouched(job, address.attempt);
    return deferred.Answer(std::move(done), status);
  }
  (*state)->overwrite |= request.overwrite();
  auto& call = (*state)->plan_calls[request.node()];
  if (call != nullptr) {
    deferred.Answer(std::move(call), absl::AbortedError("the node asked again"));
  }
  call = std::move(done);
  (*state)->plan_deadline =
      std::min((*state)->plan_deadline, DeadlineIn(request.timeout_seconds()));
  // A node that was restarted within the world that this plan is in use in.
  const bool known = job.plan != nullptr && job.plan_epoch == address.attempt.epoch &&
                     job.plan->Matches(request.ranks());
  if (round.plan() == nullptr && known) round.SetPlan(job.plan);
  if (round.plan() != nullptr && round.plan()->Matches(request.ranks())) {
    round.MarkPlanned(request.node());
  }
  if (!FailUnlessAgreed(job, **state, deferred).ok()) return;
  if (round.plan() != nullptr) {
    AnswerPlans(job, **state, deferred);
  } else if (round.AllGaveLayouts()) {
    StartPlanning(job, **state, deferred);
  }
  // Failed to start: then it is gone, with its deadline.
  auto alive = job.rounds.find(address.attempt);
  if (alive != job.rounds.end()) ArmDeadline(*alive->second);
}

void Coordinator::Impl::StartPlanning(Job& job, RoundState& state, Deferred& deferred) {
  if (state.planning) return;
  const AttemptKey attempt = state.round.attempt();
  if (job.plan != nullptr && job.plan->plan_id == state.round.FingerprintPlanId()) {
    state.round.SetPlan(job.plan);
    return AnswerPlans(job, state, deferred);
  }
  state.planning = true;
  absl::Status status = planner_.Submit(
      [this, name = job.name, attempt, layouts = state.round.TakeLayouts()]() mutable {
        const absl::Time begin = clock_.Now();
        auto plan = MakePlannedSave(layouts);
        layouts.clear();
        probe_.PlanFinished(absl::ToDoubleSeconds(clock_.Now() - begin));
        PlanIsMade(name, attempt, std::move(plan));
      });
  if (!status.ok()) FailRound(job, attempt, status, deferred);
}

void Coordinator::Impl::PlanIsMade(const std::string& name, AttemptKey attempt,
                                   absl::StatusOr<std::shared_ptr<const PlannedSave>> plan) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job& job = *FindJob(name);
  auto it = job.rounds.find(attempt);
  if (it == job.rounds.end()) return;  // failed meanwhile
  RoundState& state = *it->second;
  state.planning = false;
  if (!plan.ok()) {
    return FailRound(job, attempt, Annotate(plan.status(), state.round.Describe()), deferred);
  }
  state.round.SetPlan(*plan);
  job.plan = *std::move(plan);
  AnswerPlans(job, state, deferred);
}

// Everyone who waits for the plan gets his part.
void Coordinator::Impl::AnswerPlans(Job& job, RoundState& state, Deferred& deferred) {
  const SaveRound& round = state.round;
  job.plan_epoch = round.attempt().epoch;
  for (auto& [node, done] : std::exchange(state.plan_calls, {})) {
    state.round.MarkPlanned(node);
    // Made outside the lock: it may be large.
    deferred.Answer(
        [done = std::move(done), plan = round.plan(), ranks = round.world().ranks_of_node.at(node)](
            absl::Status) mutable { done(plan->ResponseFor(ranks)); },
        absl::OkStatus());
  }
  state.plan_deadline = absl::InfiniteFuture();
  state.save_deadline = std::min(state.save_deadline, clock_.Now() + options_.longest_wait);
  ArmDeadline(state);
}

void Coordinator::Impl::ReportStaged(const v1::ReportStagedRequest& request,
                                     Done<v1::ReportStagedResponse> done) {
  absl::Status status = CheckAddress(request.job(), request.node(), request.attempt());
  if (!status.ok()) return done(status);
  const SaveAddress address{request.job(), request.node(), KeyOf(request.attempt()),
                            request.step()};
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Job*> job = JobOfSave(address);
  if (!job.ok()) return deferred.Answer(std::move(done), job.status());
  const absl::StatusOr<v1::ReportStagedResponse> staged = v1::ReportStagedResponse();
  if (IsCommitted(**job, address.attempt, address.step)) {
    return deferred.Answer(std::move(done), staged);
  }
  absl::StatusOr<RoundState*> state = FindOrStartRound(**job, address);
  if (!state.ok()) return deferred.Answer(std::move(done), state.status());
  if (status = (*state)->round.Staged(request); !status.ok()) {
    if (absl::IsFailedPrecondition(status)) FailRound(**job, address.attempt, status, deferred);
    DropIfUntouched(**job, address.attempt);
    return deferred.Answer(std::move(done), status);
  }
  if (status = FailUnlessAgreed(**job, **state, deferred); !status.ok()) {
    return deferred.Answer(std::move(done), status);
  }
  (*state)->save_deadline =
      std::min((*state)->save_deadline, DeadlineIn(request.timeout_seconds()));
  ArmDeadline(**state);
  deferred.Answer(std::move(done), staged);
  TrySettle(**job, deferred);
}

void Coordinator::Impl::CommitSave(const v1::CommitSaveRequest& request,
                                   Done<v1::CommitSaveResponse> done) {
  absl::Status status = CheckAddress(request.job(), request.node(), request.attempt());
  if (!status.ok()) return done(status);
  const SaveAddress address{request.job(), request.node(), KeyOf(request.attempt()),
                            request.step()};
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<Job*> found = JobOfSave(address);
  if (!found.ok()) return deferred.Answer(std::move(done), found.status());
  Job& job = **found;
  v1::CommitSaveResponse response;
  if (IsCommitted(job, address.attempt, address.step)) {
    response.set_commit_sequence(job.checkpoints.at(address.step).summary().commit_sequence());
    return deferred.Answer(std::move(done), absl::StatusOr<v1::CommitSaveResponse>(response));
  }
  absl::StatusOr<RoundState*> state = FindOrStartRound(job, address);
  if (!state.ok()) return deferred.Answer(std::move(done), state.status());
  SaveRound& round = (*state)->round;
  if ((*state)->committing) {  // resent while the commit runs: the answer is the commit's
    auto& call = (*state)->commit_calls[request.node()];
    if (call != nullptr) deferred.Answer(std::move(call), absl::AbortedError("called again"));
    call = std::move(done);
    return;
  }
  if (request.error_code() != 0) {
    status = Annotate(StatusFromWire(request.error_code(), request.error_message()),
                      absl::StrCat(round.Describe(), ", node ", request.node()));
  } else {
    status = CheckNotCommitted(job, address, request.overwrite());
  }
  if (!status.ok()) {
    FailRound(job, address.attempt, status, deferred);
    return deferred.Answer(std::move(done), status);
  }
  if (round.plan() == nullptr && job.plan != nullptr && job.plan->plan_id == request.plan_id()) {
    round.SetPlan(job.plan);
  }
  const bool plan_is_known = round.plan() != nullptr && round.plan()->plan_id == request.plan_id();
  static const std::string* const empty_layout = new std::string(Sha256(""));
  const bool lacks_layouts =
      std::any_of(request.ranks().begin(), request.ranks().end(), [](const v1::RankLayout& rank) {
        return rank.layout().empty() && rank.fingerprint() != *empty_layout;
      });
  if (!plan_is_known && lacks_layouts) {
    response.set_need_layouts(true);
    DropIfUntouched(job, address.attempt);
    return deferred.Answer(std::move(done), absl::StatusOr<v1::CommitSaveResponse>(response));
  }
  if (status = round.Committed(request); !status.ok()) {
    FailRound(job, address.attempt, status, deferred);
    return deferred.Answer(std::move(done), status);
  }
  (*state)->overwrite |= request.overwrite();
  auto& call = (*state)->commit_calls[request.node()];
  if (call != nullptr) deferred.Answer(std::move(call), absl::AbortedError("called again"));
  call = std::move(done);
  if (!FailUnlessAgreed(job, **state, deferred).ok()) return;
  (*state)->save_deadline =
      std::min((*state)->save_deadline, DeadlineIn(request.timeout_seconds()));
  if (round.AllCommitted()) {
    StartCommit(job, **state, deferred);
  } else {
    ArmDeadline(**state);
    TrySettle(job, deferred);
  }
}

void Coordinator::Impl::ArmDeadline(RoundState& state) {
  CancelAlarm(state.alarm);
  const absl::Time when = std::min(state.plan_deadline, state.save_deadline);
  if (when == absl::InfiniteFuture() || state.committing) return;
  state.alarm = SetAlarm(when, [name = state.round.job(), attempt = state.round.attempt()](
                                   Impl& impl) { impl.RoundTimedOut(name, attempt); });
}

void Coordinator::Impl::RoundTimedOut(const std::string& name, AttemptKey attempt) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job* job = FindJob(name);
  auto it = job->rounds.find(attempt);
  if (it == job->rounds.end() || it->second->committing) return;
  RoundState& state = *it->second;
  if (std::min(state.plan_deadline, state.save_deadline) > clock_.Now()) return;  // re-armed
  FailRound(*job, attempt,
            absl::DeadlineExceededError(
                absl::StrCat(state.round.Describe(), ": ", state.round.DescribeWaiting())),
            deferred);
}

void Coordinator::Impl::FailRound(Job& job, AttemptKey attempt, absl::Status status,
                                  Deferred& deferred) {
  auto it = job.rounds.find(attempt);
  if (it == job.rounds.end()) return;
  RoundState& state = *it->second;
  for (auto& [node, done] : state.plan_calls) deferred.Answer(std::move(done), status);
  for (auto& [node, done] : state.commit_calls) deferred.Answer(std::move(done), status);
  job.failures.emplace_back(attempt, status);
  if (job.failures.size() > kRememberedFailures) job.failures.pop_front();
  probe_.SaveFailed(job.name, state.round.step(), status);
  EraseRound(job, attempt);
  TrySettle(job, deferred);
}

void Coordinator::Impl::EraseRound(Job& job, AttemptKey attempt) {
  auto it = job.rounds.find(attempt);
  CancelAlarm(it->second->alarm);
  job.rounds.erase(it);
  --saves_under_way_;
}

// A refused call must not leave a round that blocks its step.
void Coordinator::Impl::DropIfUntouched(Job& job, AttemptKey attempt) {
  auto it = job.rounds.find(attempt);
  if (it == job.rounds.end()) return;
  const RoundState& state = *it->second;
  if (state.plan_calls.empty() && state.commit_calls.empty() && !state.planning &&
      state.round.plan() == nullptr && state.round.StagedNodes().empty()) {
    EraseRound(job, attempt);
  }
}

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
  if (!status.ok()) FailRound(job, attempt, status, deferred);
}

void Coordinator::Impl::RunCommit(std::shared_ptr<CommitWork> work) {
  CommitFinished(*work, WriteCheckpoint(*work));
}

absl::StatusOr<v1::CheckpointRecord> Coordinator::Impl::WriteCheckpoint(CommitWork& work) {
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
  absl::Status status = FillManifest(work.plan->plan, reports, commit.manifest);
  if (!status.ok()) return status;
  return CommitCheckpoint(file_system_, *catalog_, commit);
}

// All of the manifest but what was written.
Commit Coordinator::Impl::MakeCommit(const CommitWork& work) {
  absl::MutexLock lock(&mutex_);
  const Job& job = *FindJob(work.job);
  Commit commit{.job = MakeJobRecord(job),
                .store = work.store,
                .store_folder = options_.stores.at(work.store),
                .overwrite = work.overwrite};
  commit.job.set_last_commit_sequence(job.last_commit_sequence + 1);
  v1::Manifest& manifest = commit.manifest;
  manifest.set_job(work.job);
  manifest.set_step(work.step);
  manifest.mutable_attempt()->set_epoch(work.attempt.epoch);
  manifest.mutable_attempt()->set_save_number(work.attempt.save_number);
  manifest.set_world_size(work.world_size);
  manifest.set_commit_sequence(job.last_commit_sequence + 1);
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
      const absl::Status status = Annotate(record.status(), state.round.Describe());
      return FailRound(job, work.attempt, status, deferred);
    }
    job.last_commit_sequence = record->summary().commit_sequence();
    job.plan = work.plan;
    job.plan_epoch = work.attempt.epoch;
    v1::CheckpointRecord& current = job.checkpoints[work.step];
    // Files that a load still reads are left to collection.
    if (!IsBeingLoaded(job, work.step)) replaced = std::move(current);
    current = *record;
    kept = FilesNamedByOthers(job, replaced);
    v1::CommitSaveResponse response;
    response.set_commit_sequence(job.last_commit_sequence);
    for (auto& [node, done] : state.commit_calls) {
      deferred.Answer(std::move(done), absl::StatusOr<v1::CommitSaveResponse>(response));
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
