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

// The node's own report, resent after the commit.
bool IsCommitted(const Job& job, AttemptKey attempt, uint64_t step) {
  auto it = job.checkpoints.find(step);
  return it != job.checkpoints.end() && KeyOf(it->second.summary().attempt()) == attempt;
}

// Where a call waits, one per node and kind: the latest is answered.
template <typename DoneType>
void Wait(DoneType& waiting, DoneType done, Deferred& deferred) {
  if (waiting != nullptr) {
    deferred.Answer(std::move(waiting), absl::AbortedError("the node asked again"));
  }
  waiting = std::move(done);
}

absl::Status SupersededError(const Job& job, AttemptKey attempt) {
  return absl::FailedPreconditionError(absl::StrCat(
      "epoch ", attempt.epoch, " of job ", job.name, " was superseded by epoch ",
      job.current_epoch(), ", so attempt ", AttemptName(attempt.epoch, attempt.save_number),
      " is not to be committed: end this left-over run"));
}

}  // namespace

absl::StatusOr<Coordinator::Impl::SaveCall> Coordinator::Impl::FindSave(
    const SaveAddress& address) {
  absl::Status status = ValidateJobName(address.job);
  if (status.ok()) status = ValidateNodeName(address.node);
  if (!status.ok()) return status;
  if (address.attempt.epoch == 0 || address.attempt.save_number == 0) {
    return absl::InvalidArgumentError(absl::StrCat("epoch ", address.attempt.epoch,
                                                   ", save number ", address.attempt.save_number,
                                                   " name no attempt: both count from 1"));
  }
  absl::StatusOr<Job*> job = JobOfSave(address);
  if (!job.ok()) return job.status();
  if (IsCommitted(**job, address.attempt, address.step)) return SaveCall{**job, nullptr};
  absl::StatusOr<RoundState*> state = FindOrStartRound(**job, address);
  if (!state.ok()) return state.status();
  return SaveCall{**job, *state};
}

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
    return SupersededError(*job, address.attempt);
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

// Before its layouts are looked at.
absl::Status Coordinator::Impl::CheckMayPlan(const SaveCall& call, const SaveAddress& address,
                                             bool overwrite) {
  if (address.attempt.epoch < call.job.current_epoch()) {
    return SupersededError(call.job, address.attempt);
  }
  absl::Status status = CheckNotCommitted(call.job, address, overwrite && call.state != nullptr);
  if (status.ok() && call.state->IsUntouched()) status = CheckServing();
  if (!status.ok() || !call.state->committing) return status;
  return absl::FailedPreconditionError(absl::StrCat(call.state->round.Describe(),
                                                    " is being committed: node ", address.node,
                                                    " has reported its files already"));
}

// What a node says does not fit the round. Where it contradicts what was said before,
// the round has failed.
void Coordinator::Impl::RefuseCall(Job& job, AttemptKey attempt, const absl::Status& status,
                                   Deferred& deferred) {
  if (absl::IsFailedPrecondition(status)) FailRound(job, attempt, status, deferred);
  DropIfUntouched(job, attempt);
}

void Coordinator::Impl::PlanSave(const v1::PlanSaveRequest& request,
                                 Done<v1::PlanSaveResponse> done) {
  const SaveAddress address = AddressOf(request);
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<SaveCall> call = FindSave(address);
  if (!call.ok()) return deferred.Answer(std::move(done), call.status());
  Job& job = call->job;
  if (absl::Status status = CheckMayPlan(*call, address, request.overwrite()); !status.ok()) {
    DropIfUntouched(job, address.attempt);
    return deferred.Answer(std::move(done), status);
  }
  RoundState& state = *call->state;
  SaveRound& round = state.round;
  if (absl::Status status = round.GiveLayouts(request); !status.ok()) {
    RefuseCall(job, address.attempt, status, deferred);
    return deferred.Answer(std::move(done), status);
  }
  state.overwrite |= request.overwrite();
  Wait(state.plan_calls[request.node()], std::move(done), deferred);
  state.plan_deadline = std::min(state.plan_deadline, DeadlineIn(request.timeout_seconds()));
  // A node that was restarted within the world that this plan is in use in.
  const bool known = job.plan != nullptr && job.plan_epoch == address.attempt.epoch &&
                     job.plan->Matches(request.ranks());
  if (round.plan() == nullptr && known) round.SetPlan(job.plan);
  if (round.plan() != nullptr && round.plan()->Matches(request.ranks())) {
    round.MarkPlanned(request.node());
  }
  if (!FailUnlessAgreed(job, state, deferred).ok()) return;
  if (round.plan() != nullptr) {
    AnswerPlans(job, state, deferred);
  } else if (round.AllGaveLayouts()) {
    StartPlanning(job, state, deferred);
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
  const SaveAddress address = AddressOf(request);
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<SaveCall> call = FindSave(address);
  if (!call.ok()) return deferred.Answer(std::move(done), call.status());
  const absl::StatusOr<v1::ReportStagedResponse> staged = v1::ReportStagedResponse();
  if (call->state == nullptr || call->state->committing) {
    return deferred.Answer(std::move(done), staged);
  }
  Job& job = call->job;
  RoundState& state = *call->state;
  if (absl::Status status = state.round.Staged(request); !status.ok()) {
    RefuseCall(job, address.attempt, status, deferred);
    return deferred.Answer(std::move(done), status);
  }
  if (absl::Status status = FailUnlessAgreed(job, state, deferred); !status.ok()) {
    return deferred.Answer(std::move(done), status);
  }
  state.save_deadline = std::min(state.save_deadline, DeadlineIn(request.timeout_seconds()));
  ArmDeadline(state);
  deferred.Answer(std::move(done), staged);
  TrySettle(job, deferred);
}

void Coordinator::Impl::CommitSave(const v1::CommitSaveRequest& request,
                                   Done<v1::CommitSaveResponse> done) {
  const SaveAddress address = AddressOf(request);
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<SaveCall> call = FindSave(address);
  if (!call.ok()) return deferred.Answer(std::move(done), call.status());
  absl::StatusOr<v1::CommitSaveResponse> response = v1::CommitSaveResponse();
  if (call->state == nullptr) return deferred.Answer(std::move(done), response);
  Job& job = call->job;
  RoundState& state = *call->state;
  SaveRound& round = state.round;
  if (state.committing) {  // resent while the commit runs: the answer is the commit's
    return Wait(state.commit_calls[request.node()], std::move(done), deferred);
  }
  absl::Status status = CheckNotCommitted(job, address, request.overwrite());
  if (request.error_code() != 0) {
    status = Annotate(StatusFromWire(request.error_code(), request.error_message()),
                      absl::StrCat(round.Describe(), ", node ", request.node()));
  }
  if (status.ok() && round.plan() == nullptr && job.plan != nullptr &&
      job.plan->plan_id == request.plan_id()) {
    round.SetPlan(job.plan);
  }
  const bool plan_is_known = round.plan() != nullptr && round.plan()->plan_id == request.plan_id();
  if (status.ok() && !plan_is_known && LacksLayouts(request)) {
    response->set_need_layouts(true);
    DropIfUntouched(job, address.attempt);
    return deferred.Answer(std::move(done), response);
  }
  if (status.ok()) status = round.Committed(request);
  if (!status.ok()) {
    FailRound(job, address.attempt, status, deferred);
    return deferred.Answer(std::move(done), status);
  }
  state.overwrite |= request.overwrite();
  Wait(state.commit_calls[request.node()], std::move(done), deferred);
  if (!FailUnlessAgreed(job, state, deferred).ok()) return;
  state.save_deadline = std::min(state.save_deadline, DeadlineIn(request.timeout_seconds()));
  if (round.AllCommitted()) return StartCommit(job, state, deferred);
  ArmDeadline(state);
  // Others wait for the plan by which this node has saved, made by an earlier coordinator.
  if (round.plan() == nullptr && round.AllGaveLayouts()) StartPlanning(job, state, deferred);
  TrySettle(job, deferred);
}

}  // namespace ckptd
