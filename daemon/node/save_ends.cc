// How attempts end, and what is left of them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/limits.h"
#include "daemon/node/saves.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

// For telling the coordinator that an attempt has failed here.
constexpr double kTellFailureSeconds = 30;
// For the arena's own answer at the same deadline.
constexpr absl::Duration kArenaSaysWho = absl::Seconds(1);

}  // namespace

void Saves::SessionEnded(const Session& session) {
  Later later;
  absl::MutexLock lock(&mutex_);
  std::vector<SaveAttemptPtr> all;  // failing one forgets others
  for (const auto& [key, attempt] : attempts_) all.push_back(attempt);
  for (const SaveAttemptPtr& attempt : all) {
    bool took_part = false;
    for (auto& [rank, part] : attempt->ranks) {
      if (part.session != session.id || !part.alive) continue;
      part.alive = false;
      took_part = true;
      if (attempt->in_flight() && !part.finished) {
        Fail(attempt,
             absl::AbortedError(absl::StrCat("rank ", rank, " (process ", part.process_id,
                                             ") has ended before its snapshot was finished")),
             ToldBy::kUs, later);
      }
    }
    if (!took_part || attempt->in_flight()) continue;
    attempt->ReleaseLeases();
    ForgetEnded(attempt->key.job);
  }
  memory_.SessionEnded(session.id);
}

// Once the commit was asked for, only its own clear refusal means that no manifest names
// the files; else they are left to the coordinator's collection.
bool Saves::FilesAreOurs(const SaveAttempt& attempt, const absl::Status& why, ToldBy told_by) {
  if (!attempt.commit_sent) return true;
  const bool refused = absl::IsAborted(why) || absl::IsFailedPrecondition(why) ||
                       absl::IsInvalidArgument(why) || absl::IsPermissionDenied(why);
  return told_by == ToldBy::kCoordinator && refused;
}

void Saves::RemoveFiles(const SaveAttempt& attempt, const std::vector<std::string>& paths) {
  const std::string& store = attempt.world.store;
  persister_.Remove(options_.stores.at(store), attempt.key.job, paths);
  for (const std::string& path : paths) kept_.Drop({store, attempt.key.job, path});
}

void Saves::Fail(const SaveAttemptPtr& attempt, const absl::Status& why, ToldBy told_by,
                 Later& later) {
  if (!attempt->in_flight()) return;
  environment_.probe.SaveFailed(why.code(), attempt->phase);
  attempt->error = Annotate(why, attempt->Describe(options_.node_name));
  environment_.probe.Warning(attempt->error.message());
  // Held until they are abandoned: one that waits for a window is held by nobody else, and
  // what was written of it must be removed.
  std::vector<std::shared_ptr<OpenFile>> open_files;
  for (auto& [rank, part] : attempt->ranks) {
    if (part.begun && !part.answered) later.Answer(std::move(part.answer), attempt->error);
    if (part.extend_done) {
      later.Answer(std::exchange(part.extend_done, nullptr), attempt->error);
    }
    open_files.push_back(std::move(part.tensor_file));
    open_files.push_back(std::move(part.small_file));
  }
  std::vector<std::string> paths;
  if (FilesAreOurs(*attempt, why, told_by)) {
    for (const v1::DataFile& file : attempt->files) paths.push_back(file.path());
  }
  later.Add([this, attempt, paths = std::move(paths), open_files = std::move(open_files)] {
    RemoveFiles(*attempt, paths);
    persister_.Abandon(attempt->progress);
  });
  if (told_by == ToldBy::kUs && !attempt->commit_sent) {
    v1::CommitSaveRequest request = attempt->CommitRequest(options_.node_name, false);
    request.set_timeout_seconds(kTellFailureSeconds);
    later.Add([this, request = std::move(request)]() mutable {
      // Our own end doesn't depend on the answer: the others learn it there.
      environment_.coordinator.CommitSave(std::move(request),
                                          [](absl::StatusOr<v1::CommitSaveResponse>) {});
    });
  }
  SetPhase(*attempt, v1::SAVE_PHASE_FAILED, later);
  Ended(attempt);
}

void Saves::Ended(const SaveAttemptPtr& attempt) {
  attempt->ended = environment_.clock.Now();
  alarms_.Cancel(attempt->alarm);
  attempt->ticket.reset();
  attempt->ReleaseLeases();
  attempt->DropWhatIsOver();
  if (attempt->holds_leases()) ReclaimLater(attempt);
  --in_flight_;
  ended_[attempt->key.job].push_back(attempt->key);
  ForgetEnded(attempt->key.job);
}

void Saves::ReclaimLater(const SaveAttemptPtr& attempt) {
  // Not the attempt itself: an alarm may outlive the arena.
  alarms_.At(environment_.clock.Now() + kReclaimAfter,
             [this, weak = std::weak_ptr<SaveAttempt>(attempt)] {
               absl::MutexLock lock(&mutex_);
               const SaveAttemptPtr held = weak.lock();
               if (held == nullptr || !held->holds_leases()) return;
               environment_.probe.Warning(absl::StrCat(
                   held->Describe(options_.node_name), " has failed, and ", held->DescribeHolders(),
                   " has not stopped its snapshot: its memory is taken out of use"));
               held->ReclaimLeases();
               ForgetEnded(held->key.job);
             });
}

void Saves::ForgetEnded(const std::string& job) {
  auto found = ended_.find(job);
  if (found == ended_.end()) return;
  std::deque<AttemptKey>& ended = found->second;
  size_t too_many = ended.size() - std::min(ended.size(), kRememberedAttempts);
  for (auto it = ended.begin(); it != ended.end();) {
    const SaveAttempt& attempt = *attempts_.at(*it);
    const bool forget = !attempt.holds_leases() && (too_many > 0 || !attempt.any_alive());
    if (!forget) {
      ++it;
      continue;
    }
    too_many -= too_many > 0 ? 1 : 0;
    attempts_.erase(*it);
    it = ended.erase(it);
  }
  if (ended.empty()) ended_.erase(found);
}

void Saves::SetPhase(SaveAttempt& attempt, v1::SavePhase phase, Later& later) {
  attempt.phase = phase;
  const bool over = !attempt.in_flight();
  auto reached = std::stable_partition(
      attempt.waiters.begin(), attempt.waiters.end(),
      [&](const SaveWaiter& waiter) { return !over && waiter.until > phase; });
  if (over) attempt.ended = environment_.clock.Now();
  for (auto it = reached; it != attempt.waiters.end(); ++it) {
    alarms_.Cancel(it->alarm);
    later.Answer(std::move(it->done), attempt.ToProto());
  }
  attempt.waiters.erase(reached, attempt.waiters.end());
}

void Saves::DeadlinePassed(const SaveAttemptPtr& attempt) {
  Later later;
  absl::MutexLock lock(&mutex_);
  if (!attempt->in_flight()) return;
  // The commit's own deadline is the same, and the coordinator says more.
  if (attempt->phase == v1::SAVE_PHASE_COMMIT) return;
  if (attempt->waits_for_arena() && environment_.clock.Now() < attempt->deadline + kArenaSaysWho) {
    // So does the arena: it names who holds it. Looked at again in case that it grants instead.
    attempt->alarm =
        alarms_.At(attempt->deadline + kArenaSaysWho, [this, attempt] { DeadlinePassed(attempt); });
    return;
  }
  Fail(attempt, absl::DeadlineExceededError(attempt->DescribeWait()), ToldBy::kUs, later);
}

std::vector<v1::UnfinishedAttempt> Saves::Unfinished(const std::string& job) const {
  std::vector<v1::UnfinishedAttempt> unfinished;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, attempt] : attempts_) {
    if (key.job != job || !attempt->in_flight()) continue;
    v1::UnfinishedAttempt& entry = unfinished.emplace_back();
    *entry.mutable_attempt() = attempt->AttemptProto();
    entry.set_step(attempt->step);
    entry.set_staged(attempt->all_finished());
  }
  return unfinished;
}

std::vector<v1::SaveInFlight> Saves::InFlight() const {
  std::vector<v1::SaveInFlight> saves;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, attempt] : attempts_) {
    if (!attempt->in_flight()) continue;
    v1::SaveInFlight& save = saves.emplace_back();
    save.set_job(key.job);
    save.set_step(attempt->step);
    *save.mutable_attempt() = attempt->AttemptProto();
    save.set_phase(attempt->phase);
    save.set_bytes(attempt->bytes());
    save.set_persisted_bytes(attempt->progress->written_bytes.load());
  }
  return saves;
}

absl::Status Saves::Drain(absl::Time deadline) {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  auto idle = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return in_flight_ == 0; };
  if (mutex_.AwaitWithDeadline(absl::Condition(&idle), deadline)) return absl::OkStatus();
  std::vector<std::string> left;
  for (const auto& [key, attempt] : attempts_) {
    if (attempt->in_flight()) {
      left.push_back(
          absl::StrCat(attempt->Describe(options_.node_name), ": ", attempt->DescribeWait()));
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat("draining node ", options_.node_name, ": ", absl::StrJoin(left, "; ")));
}

void Saves::Stop() {
  Later later;
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  std::vector<SaveAttemptPtr> all;
  for (const auto& [key, attempt] : attempts_) all.push_back(attempt);
  for (const SaveAttemptPtr& attempt : all) {
    Fail(attempt, absl::UnavailableError("the node daemon is shutting down"), ToldBy::kUs, later);
  }
}

double Saves::SecondsLeft(const SaveAttempt& attempt) const {
  return std::max(0.001, absl::ToDoubleSeconds(attempt.deadline - environment_.clock.Now()));
}

}  // namespace ckptd
