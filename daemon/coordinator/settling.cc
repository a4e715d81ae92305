// Settling: what becomes of older worlds' unfinished saves (settlement.h), recorded for ever.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/settlement.h"
#include "proto/rpc/status.h"

namespace ckptd {

// What a joining node still holds of older worlds' saves.
void Coordinator::Impl::NoteUnfinished(Job& job, const v1::JoinWorldRequest& join) {
  for (const v1::UnfinishedAttempt& unfinished : join.unfinished()) {
    const AttemptKey key = KeyOf(unfinished.attempt());
    auto world = job.worlds.find(key.epoch);
    if (!unfinished.staged() || key.epoch >= job.current_epoch() || world == job.worlds.end()) {
      continue;
    }
    auto committed = job.checkpoints.find(unfinished.step());
    if (committed != job.checkpoints.end() && KeyOf(committed->second.summary().attempt()) == key) {
      continue;
    }
    auto round = job.rounds.find(key);
    const bool failed = std::any_of(job.failures.begin(), job.failures.end(),
                                    [&](const auto& failure) { return failure.first == key; });
    if (round == job.rounds.end() && (failed || job.rounds.size() >= kMaxRoundsPerJob)) continue;
    RoundState& state =
        round == job.rounds.end() ? StartRound(job, key, unfinished.step()) : *round->second;
    state.round.MarkStaged(join.node());
  }
}

void Coordinator::Impl::TrySettle(Job& job, Deferred& deferred) {
  Settling& settling = job.settling;
  if (job.IsSettled() || settling.recording || stopping_) return;
  bool may_hear_more = JudgeOlderRounds(job, deferred);
  if (settling.recording) return;  // the last one that was abandoned has settled it
  bool unfinished = false;
  for (const auto& [key, state] : job.rounds) unfinished |= key.epoch < settling.new_world->epoch;
  for (const auto& [epoch, world] : job.worlds) {
    if (epoch >= settling.new_world->epoch || settling.grace_over) continue;
    may_hear_more |=
        !settling.nodes_were_asked || MayHoldUnknownAttempts(*world, *settling.new_world);
  }
  if (may_hear_more && settling.grace_alarm == 0) {
    settling.grace_alarm = SetAlarm(clock_.Now() + options_.settle_grace,
                                    [name = job.name](Impl& impl) { impl.GraceOver(name); });
  }
  if (may_hear_more || unfinished) return;
  CancelAlarm(settling.grace_alarm);
  settling.recording = true;
  const uint64_t epoch = settling.new_world->epoch - 1;
  absl::Status status =
      writer_.Submit([this, name = job.name, epoch] { RecordSettled(name, epoch); });
  if (!status.ok()) settling.recording = false;
}

// Abandons what can't be whole any more. True when some attempt may still become so.
bool Coordinator::Impl::JudgeOlderRounds(Job& job, Deferred& deferred) {
  const Settling& settling = job.settling;
  // Who was not asked may still report.
  static const World* const nobody = new World();
  const World& asked = settling.nodes_were_asked ? *settling.new_world : *nobody;
  bool waits = false;
  std::vector<AttemptKey> abandoned;
  for (auto& [key, state] : job.rounds) {
    if (key.epoch >= settling.new_world->epoch || state->committing) continue;
    switch (JudgeAttempt(state->round.world(), state->round.StagedNodes(), asked,
                         settling.grace_over)) {
      case Verdict::kAbandon:
        abandoned.push_back(key);
        break;
      case Verdict::kWait:
        waits = true;
        break;
      case Verdict::kFinish:
        if (state->save_deadline == absl::InfiniteFuture()) {
          state->save_deadline = clock_.Now() + options_.settle_finish_timeout;
          ArmDeadline(*state);
        }
        break;
    }
  }
  for (AttemptKey key : abandoned) {
    FailRound(job, key,
              absl::AbortedError(absl::StrCat(
                  "abandoned: a newer run, epoch ", settling.new_world->epoch, " of job ", job.name,
                  ", began before all nodes had staged epoch ", key.epoch, "'s")),
              deferred);
  }
  return waits;
}

void Coordinator::Impl::GraceOver(const std::string& name) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job* job = FindJob(name);
  if (job == nullptr || job->IsSettled()) return;
  job->settling.grace_alarm = 0;
  job->settling.grace_over = true;
  TrySettle(*job, deferred);
}

// On the writer: epochs up to this one are settled, for ever.
void Coordinator::Impl::RecordSettled(const std::string& name, uint64_t epoch) {
  v1::JobRecord record;
  {
    absl::MutexLock lock(&mutex_);
    Job& job = *FindJob(name);
    record = MakeJobRecord(job);
    record.set_settled_epoch(epoch);
    while (!record.worlds().empty() && record.worlds(0).epoch() <= epoch) {
      record.mutable_worlds()->DeleteSubrange(0, 1);
    }
  }
  const absl::Status status = catalog_->PutJob(record);

  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job& job = *FindJob(name);
  job.settling.recording = false;
  if (!status.ok()) {
    // The next load tries again; until then none is answered.
    return probe_.Warning(std::string(Annotate(status, "settling older saves").message()));
  }
  job.settled_epoch = epoch;
  job.worlds.erase(job.worlds.begin(), job.worlds.upper_bound(epoch));
  job.loaded_step.erase(job.loaded_step.begin(), job.loaded_step.upper_bound(epoch));
  // A still newer world has its own to settle.
  if (job.settling.new_world != nullptr && job.settling.new_world->epoch == epoch + 1) {
    CancelAlarm(job.settling.grace_alarm);
    job.settling = {};
    TryPlanLoads(job, deferred);
  } else {
    TrySettle(job, deferred);
  }
}

}  // namespace ckptd
