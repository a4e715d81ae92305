// The calls of a save: planning, staging and committing reports.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/fingerprint.h"
#include "daemon/coordinator/names.h"
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
  if ((*state)->committing) {
    return deferred.Answer(
        std::move(done), absl::FailedPreconditionError(
                             absl::StrCat((*state)->round.Describe(), " is being committed: node ",
                                          request.node(), " has reported its files already")));
  }
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
  if ((*state)->committing) return deferred.Answer(std::move(done), staged);
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
  if (!plan_is_known && LacksLayouts(request)) {
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
  if (round.AllCommitted()) return StartCommit(job, **state, deferred);
  ArmDeadline(**state);
  TrySettle(job, deferred);
  // Others wait for the plan by which this node has saved, made by an earlier coordinator.
  auto alive = job.rounds.find(address.attempt);
  if (alive != job.rounds.end() && round.plan() == nullptr && round.AllGaveLayouts()) {
    StartPlanning(job, *alive->second, deferred);
  }
}

}  // namespace ckptd
