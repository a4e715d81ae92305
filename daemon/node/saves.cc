// The trainers' calls and how attempts end. The way between is in save_phases.cc.
#include "daemon/node/saves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/limits.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

absl::Status CheckRequest(const v1::BeginSaveRequest& request) {
  if (request.attempt().epoch() == 0) {
    return absl::FailedPreconditionError("a reader can't save: join without `reader`");
  }
  if (request.attempt().save_number() == 0) {
    return absl::InvalidArgumentError("save numbers count from 1");
  }
  if (request.fingerprint().size() != kSha256Bytes) {
    return absl::InvalidArgumentError("a fingerprint is a SHA-256");
  }
  if (static_cast<size_t>(request.tags_size()) > kMostTags) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.tags_size(), " tags; at most ", kMostTags, " are possible"));
  }
  for (const auto& [name, value] : request.tags()) {
    if (name.empty() || name.size() > kLongestTagBytes || value.size() > kLongestTagBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tag's name and value have at most ", kLongestTagBytes, " bytes"));
    }
  }
  return CheckTimeout(request.timeout_seconds()).status();
}

absl::Status CheckContents(const CheckedLayout& layout, const v1::BeginSaveRequest& request) {
  if (static_cast<size_t>(request.small_size()) != layout.small.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.small_size(), " small contents for a layout with ",
                     layout.small.size(), " small tensors and values"));
  }
  for (int i = 0; i < request.small_size(); ++i) {
    const v1::SmallContent& content = request.small(i);
    const CheckedSmall& entry = layout.small[i];
    const bool fits = content.sha256().size() == kSha256Bytes &&
                      content.size_bytes() < (uint64_t{1} << 48) &&
                      (entry.is_value || content.size_bytes() == entry.size_bytes);
    if (!fits) {
      return absl::InvalidArgumentError(
          absl::StrCat("the content of ", entry.name, " has ", content.size_bytes(),
                       " bytes and a hash of ", content.sha256().size(), "; expected ",
                       entry.is_value ? "any size" : absl::StrCat(entry.size_bytes, " bytes"),
                       " and ", kSha256Bytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Saves::Saves(const NodeOptions& options, NodeEnvironment environment, Alarms& alarms,
             CallScope& scope, Worlds& worlds, Arena& arena, Persister& persister)
    : options_(options),
      environment_(environment),
      alarms_(alarms),
      scope_(scope),
      worlds_(worlds),
      arena_(arena),
      persister_(persister) {}

void Saves::BeginSave(const SessionPtr& session, v1::BeginSaveRequest request,
                      Done<v1::BeginSaveResponse> done) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return std::move(done)(status);
  absl::StatusOr<WorldView> world =
      worlds_.Find(*session, request.job(), request.attempt().epoch());
  if (!world.ok()) return std::move(done)(world.status());
  absl::StatusOr<CheckedLayoutPtr> layout = FindLayout(*world, request);
  if (!layout.ok()) return std::move(done)(layout.status());
  if (*layout == nullptr) {
    v1::BeginSaveResponse response;
    response.set_need_layout(true);
    return std::move(done)(std::move(response));
  }
  if (absl::Status status = CheckContents(**layout, request); !status.ok()) {
    return std::move(done)(status);
  }
  if (!request.overwrite() && worlds_.IsCommitted(request.job(), request.step())) {
    return AskIfCommitted(session, *world, *layout, std::move(request), std::move(done));
  }
  Begin(session, *world, *layout, std::move(request), std::move(done));
}

absl::StatusOr<CheckedLayoutPtr> Saves::FindLayout(const WorldView& world,
                                                   v1::BeginSaveRequest& request) {
  const auto find = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) -> CheckedLayoutPtr {
    for (const CheckedLayoutPtr& known : memory_[{world.job, world.epoch}].layouts[world.rank]) {
      if (known->fingerprint == request.fingerprint()) return known;
    }
    return nullptr;
  };
  {
    absl::MutexLock lock(&mutex_);
    CheckedLayoutPtr known = find();
    // A rank that has nothing to save has a layout of no bytes.
    const bool given = !request.layout().empty() || request.fingerprint() == Sha256Of("");
    if (known != nullptr || !given) return known;
  }
  absl::StatusOr<CheckedLayoutPtr> checked =
      CheckSaveLayout(std::move(*request.mutable_layout()), request.fingerprint());
  if (!checked.ok()) return checked;
  absl::MutexLock lock(&mutex_);
  std::deque<CheckedLayoutPtr>& layouts = memory_[{world.job, world.epoch}].layouts[world.rank];
  layouts.push_front(*checked);
  if (layouts.size() > kCachedLayoutsPerRank) layouts.pop_back();
  return checked;
}

void Saves::AskIfCommitted(const SessionPtr& session, const WorldView& world,
                           const CheckedLayoutPtr& layout, v1::BeginSaveRequest request,
                           Done<v1::BeginSaveResponse> done) {
  v1::AuthorizedListCheckpoints ask;
  ask.set_user_id(session->user_id);
  ask.mutable_request()->set_job(request.job());
  environment_.coordinator.ListCheckpoints(
      std::move(ask), scope_.Wrap([this, session, world, layout, request = std::move(request),
                                   done = std::move(done)](
                                      absl::StatusOr<v1::ListCheckpointsResponse> answer) mutable {
        bool exists = !answer.ok();  // what we knew stands
        if (answer.ok()) {
          for (const v1::CheckpointSummary& summary : answer->checkpoints()) {
            exists |= summary.step() == request.step();
          }
        }
        if (exists) {
          return std::move(done)(absl::AlreadyExistsError(
              absl::StrCat("step ", request.step(), " of job ", request.job(),
                           " is committed already: save another step, or with overwrite")));
        }
        worlds_.SetCommitted(request.job(), request.step(), false);
        Begin(session, world, layout, std::move(request), std::move(done));
      }));
}

void Saves::Begin(const SessionPtr& session, const WorldView& world, const CheckedLayoutPtr& layout,
                  v1::BeginSaveRequest request, Done<v1::BeginSaveResponse> done) {
  Later later;
  absl::MutexLock lock(&mutex_);
  memory_[{world.job, world.epoch}].sessions.insert(session->id);
  absl::StatusOr<SaveAttemptPtr> attempt = FindOrCreate(world, request);
  absl::Status status = attempt.status();
  if (status.ok() && !(*attempt)->in_flight()) status = (*attempt)->error;
  if (status.ok()) status = AddRank(**attempt, world, layout, request, done);
  if (!status.ok()) return later.Answer(std::move(done), status);
  if (const std::vector<uint32_t> changed = (*attempt)->ChangedAlone(); !changed.empty()) {
    memory_[{world.job, world.epoch}].plan.reset();
    return Fail(*attempt,
                absl::FailedPreconditionError(absl::StrCat(
                    "rank ", absl::StrJoin(changed, ", "),
                    " has changed the layout of its state and others have not; the next save "
                    "plans anew")),
                ToldBy::kUs, later);
  }
  Advance(*attempt, later);
}

absl::StatusOr<SaveAttemptPtr> Saves::FindOrCreate(const WorldView& world,
                                                   const v1::BeginSaveRequest& request) {
  const AttemptKey key{world.job, world.epoch, request.attempt().save_number()};
  if (auto found = attempts_.find(key); found != attempts_.end()) return found->second;
  if (absl::Status status = CheckNewAttempt(world, request); !status.ok()) return status;
  auto attempt = std::make_shared<SaveAttempt>();
  attempt->key = key;
  attempt->step = request.step();
  attempt->world = world;
  attempt->overwrite = request.overwrite();
  attempt->tags.insert(request.tags().begin(), request.tags().end());
  attempt->started = environment_.clock.Now();
  attempt->snapshot_finished = attempt->persist_finished = attempt->started;
  attempt->deadline = attempt->started + absl::Seconds(request.timeout_seconds());
  attempt->alarm = alarms_.At(attempt->deadline, [this, attempt] { DeadlinePassed(attempt); });
  for (const WorldMember& member : world.members) {
    RankPart& part = attempt->ranks[member.rank];
    part.session = member.session;
    part.process_id = member.process_id;
  }
  attempt->earlier_plan = memory_[{world.job, world.epoch}].plan;
  attempt->ticket = arena_.Open(world.job, attempt->Describe(options_.node_name));
  attempts_[key] = attempt;
  ++in_flight_;
  environment_.probe.SaveStarted();
  // A new epoch's first save: what was remembered of older ones is of no use.
  while (true) {
    auto it = memory_.lower_bound({world.job, 0});
    if (it == memory_.end() || it->first.first != world.job || it->first.second >= world.epoch) {
      break;
    }
    memory_.erase(it);
  }
  return attempt;
}

absl::Status Saves::CheckNewAttempt(const WorldView& world,
                                    const v1::BeginSaveRequest& request) const {
  if (draining_) {
    return absl::UnavailableError(
        absl::StrCat("node ", options_.node_name, " is draining: it takes no new saves"));
  }
  for (const WorldMember& member : world.members) {
    if (member.alive) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", member.rank, " (process ", member.process_id, ") of job ", world.job,
                     " has ended: the world is not whole, start the run again"));
  }
  size_t of_job = 0;
  for (const auto& [key, attempt] : attempts_) {
    if (key.job != world.job || !attempt->in_flight()) continue;
    ++of_job;
    if (attempt->step == request.step()) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", request.step(), " of job ", world.job, " is being saved already (",
                       AttemptName(key.epoch, key.save_number), "): wait for it"));
    }
  }
  if (of_job >= kMostAttemptsInFlight) {
    return absl::ResourceExhaustedError(absl::StrCat("job ", world.job, " has ", of_job,
                                                     " saves in flight, the limit: wait for one"));
  }
  return absl::OkStatus();
}

absl::Status Saves::AddRank(SaveAttempt& attempt, const WorldView& world,
                            const CheckedLayoutPtr& layout, v1::BeginSaveRequest& request,
                            Done<v1::BeginSaveResponse>& done) {
  uint64_t& last = memory_[{world.job, world.epoch}].last_save_number[world.rank];
  if (attempt.step != request.step() || attempt.overwrite != request.overwrite()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", world.rank, " saves step ", request.step(),
        request.overwrite() ? " with overwrite" : "", " as save number ", attempt.key.save_number,
        ", and another rank step ", attempt.step, attempt.overwrite ? " with overwrite" : "",
        ": all ranks must call save() alike"));
  }
  if (attempt.key.save_number <= last) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", world.rank, " has used save number ",
                                                   last, " already: numbers must grow"));
  }
  auto found = attempt.ranks.find(world.rank);
  if (found == attempt.ranks.end()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", world.rank, " joined after ", attempt.Describe(options_.node_name), " began"));
  }
  last = attempt.key.save_number;
  RankPart& part = found->second;
  for (const WorldMember& member : world.members) {
    if (member.rank != world.rank) continue;
    part.session = member.session;
    part.process_id = member.process_id;
  }
  part.begun = true;
  part.layout = layout;
  part.small.assign(request.small().begin(), request.small().end());
  part.known_plan_id = request.known_plan_id();
  part.answer = std::move(done);
  return absl::OkStatus();
}

absl::StatusOr<SaveAttemptPtr> Saves::FindFor(const Session& session, const std::string& job,
                                              const v1::Attempt& attempt) const {
  auto found = attempts_.find({job, attempt.epoch(), attempt.save_number()});
  if (found == attempts_.end()) {
    return absl::NotFoundError(absl::StrCat(
        "node ", options_.node_name, " knows no save ",
        AttemptName(attempt.epoch(), attempt.save_number()), " of job ", job.substr(0, 128),
        ": it is long over, or the node daemon was restarted and what it had staged is lost"));
  }
  for (const auto& [rank, part] : found->second->ranks) {
    if (part.session == session.id) return found->second;
  }
  return absl::PermissionDeniedError("this session has no part in that save");
}

void Saves::FinishSnapshot(const SessionPtr& session, const v1::FinishSnapshotRequest& request,
                           Done<v1::FinishSnapshotResponse> done) {
  Later later;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<SaveAttemptPtr> found = FindFor(*session, request.job(), request.attempt());
  if (!found.ok()) return later.Answer(std::move(done), found.status());
  SaveAttempt& attempt = **found;
  const auto mine = std::find_if(attempt.ranks.begin(), attempt.ranks.end(),
                                 [&](auto& entry) { return entry.second.session == session->id; });
  auto& [rank, part] = *mine;
  // One that gives up need not have been answered.
  const bool premature = !part.answered && request.error().empty();
  if (attempt.in_flight() && (premature || part.finished)) {
    return later.Answer(std::move(done),
                        absl::FailedPreconditionError(
                            absl::StrCat("rank ", rank,
                                         part.finished ? " has finished its snapshot already"
                                                       : " has no lease yet to have copied into")));
  }
  part.finished = true;
  part.blocked_seconds =
      std::isfinite(request.blocked_seconds()) ? std::max(0.0, request.blocked_seconds()) : 0.0;
  environment_.probe.StallReported(part.blocked_seconds);
  if (attempt.in_flight() && !request.error().empty()) {
    Fail(*found,
         absl::AbortedError(absl::StrCat("the snapshot of rank ", rank, " failed: ",
                                         request.error().substr(0, kLongestErrorBytes))),
         ToldBy::kUs, later);
  }
  if (!attempt.in_flight()) {
    attempt.ReleaseLeases();
    if (attempt.error.ok()) return later.Answer(std::move(done), v1::FinishSnapshotResponse());
    return later.Answer(std::move(done), attempt.error);
  }
  if (attempt.all_finished()) attempt.snapshot_finished = environment_.clock.Now();
  PersistRank(*found, rank, later);
  Advance(*found, later);
  later.Answer(std::move(done), v1::FinishSnapshotResponse());
}

void Saves::WaitSave(const SessionPtr& session, const v1::WaitSaveRequest& request,
                     Done<v1::SaveStatus> done) {
  const double seconds = request.timeout_seconds();
  if (!(seconds >= 0) || seconds > kLongestTimeoutSeconds) {
    return std::move(done)(absl::InvalidArgumentError("timeout_seconds is out of range"));
  }
  Later later;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<SaveAttemptPtr> found = FindFor(*session, request.job(), request.attempt());
  if (!found.ok()) return later.Answer(std::move(done), found.status());
  SaveAttempt& attempt = **found;
  if (!attempt.in_flight() || attempt.phase >= request.until() || seconds == 0) {
    return later.Answer(std::move(done), attempt.ToProto());
  }
  if (attempt.waiters.size() >= kMostWaiters) {
    return later.Answer(std::move(done), absl::ResourceExhaustedError(absl::StrCat(
                                             kMostWaiters, " calls wait for this save already")));
  }
  const uint64_t id = next_waiter_++;
  const AlarmId alarm = alarms_.At(environment_.clock.Now() + absl::Seconds(seconds),
                                   [this, attempt = *found, id] { WaiterExpired(attempt, id); });
  attempt.waiters.push_back(
      {.until = request.until(), .done = std::move(done), .alarm = alarm, .id = id});
}

void Saves::WaiterExpired(const SaveAttemptPtr& attempt, uint64_t id) {
  Later later;
  absl::MutexLock lock(&mutex_);
  auto it = std::find_if(attempt->waiters.begin(), attempt->waiters.end(),
                         [&](const SaveWaiter& waiter) { return waiter.id == id; });
  if (it == attempt->waiters.end()) return;
  later.Answer(std::move(it->done), attempt->ToProto());
  attempt->waiters.erase(it);
}

void Saves::SessionEnded(const Session& session) {
  Later later;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, attempt] : attempts_) {
    for (auto& [rank, part] : attempt->ranks) {
      if (part.session != session.id || !part.alive) continue;
      part.alive = false;
      if (attempt->in_flight() && !part.finished) {
        Fail(attempt,
             absl::AbortedError(absl::StrCat("rank ", rank, " (process ", part.process_id,
                                             ") has ended before its snapshot was finished")),
             ToldBy::kUs, later);
      } else if (!attempt->in_flight()) {
        attempt->ReleaseLeases();
      }
    }
  }
  for (auto it = memory_.begin(); it != memory_.end();) {
    it->second.sessions.erase(session.id);
    it = it->second.sessions.empty() ? memory_.erase(it) : std::next(it);
  }
}

void Saves::Fail(const SaveAttemptPtr& attempt, const absl::Status& why, ToldBy told_by,
                 Later& later) {
  if (!attempt->in_flight()) return;
  environment_.probe.SaveFailed(why.code(), attempt->phase);
  attempt->error = Annotate(why, attempt->Describe(options_.node_name));
  environment_.probe.Warning(attempt->error.message());
  for (auto& [rank, part] : attempt->ranks) {
    if (part.begun && !part.answered) later.Answer(std::move(part.answer), attempt->error);
  }
  // Once the commit was asked for, only a clear refusal means that no manifest names
  // our files; else they are left to the coordinator's collection.
  const bool refused = absl::IsAborted(why) || absl::IsFailedPrecondition(why) ||
                       absl::IsInvalidArgument(why) || absl::IsPermissionDenied(why);
  if (!attempt->commit_sent || (told_by == ToldBy::kCoordinator && refused)) {
    std::vector<std::string> paths;
    for (const v1::DataFile& file : attempt->files) paths.push_back(file.path());
    later.Add([this, attempt, paths = std::move(paths)] {
      persister_.Remove(options_.stores.at(attempt->world.store), attempt->key.job, paths);
    });
  }
  later.Add([this, progress = attempt->progress] { persister_.Abandon(progress); });
  if (told_by == ToldBy::kUs && !attempt->commit_sent) {
    v1::CommitSaveRequest request = attempt->CommitRequest(options_.node_name, false);
    request.set_timeout_seconds(30);
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
  --in_flight_;
  std::deque<AttemptKey>& ended = ended_[attempt->key.job];
  ended.push_back(attempt->key);
  for (auto it = ended.begin(); ended.size() > kRememberedAttempts && it != ended.end();) {
    // One whose memory a trainer may still write to is kept.
    if (attempts_.at(*it)->holds_leases()) {
      ++it;
      continue;
    }
    attempts_.erase(*it);
    it = ended.erase(it);
  }
}

void Saves::SetPhase(SaveAttempt& attempt, v1::SavePhase phase, Later& later) {
  attempt.phase = phase;
  const bool over = !attempt.in_flight();
  auto reached = std::stable_partition(
      attempt.waiters.begin(), attempt.waiters.end(),
      [&](const SaveWaiter& waiter) { return !over && waiter.until > phase; });
  if (phase == v1::SAVE_PHASE_DURABLE) attempt.ended = environment_.clock.Now();
  for (auto it = reached; it != attempt.waiters.end(); ++it) {
    alarms_.Cancel(it->alarm);
    later.Answer(std::move(it->done), attempt.ToProto());
  }
  attempt.waiters.erase(reached, attempt.waiters.end());
}

void Saves::DeadlinePassed(const SaveAttemptPtr& attempt) {
  Later later;
  absl::MutexLock lock(&mutex_);
  // The commit's own deadline is the same, and the coordinator says more.
  if (attempt->phase == v1::SAVE_PHASE_COMMIT) return;
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
