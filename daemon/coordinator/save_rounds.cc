// The life of a round, one attempt at saving one step: its start, deadline and end.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/names.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {

absl::StatusOr<RoundState*> Coordinator::Impl::FindOrStartRound(Job& job,
                                                                const SaveAddress& address) {
  if (!job.worlds.at(address.attempt.epoch)->HasNode(address.node)) {
    return absl::InvalidArgumentError(absl::StrCat("node ", address.node, " has no rank in epoch ",
                                                   address.attempt.epoch, " of job ", job.name));
  }
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
  return &StartRound(job, address.attempt, address.step);
}

RoundState& Coordinator::Impl::StartRound(Job& job, AttemptKey attempt, uint64_t step) {
  auto& state = job.rounds[attempt];
  state = std::make_unique<RoundState>(
      SaveRound(job.name, step, attempt, job.worlds.at(attempt.epoch)));
  ++saves_under_way_;
  return *state;
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
  // What the writer works on has one end: CommitFinished.
  if (it == job.rounds.end() || it->second->committing) return;
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
  if (it != job.rounds.end() && it->second->IsUntouched()) EraseRound(job, attempt);
}

}  // namespace ckptd
