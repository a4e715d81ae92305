// The trainers' calls. The way of an attempt is in save_phases.cc, its ends in save_ends.cc.
#include "daemon/node/saves.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/limits.h"
#include "daemon/node/save_checks.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
Saves::Saves(const NodeOptions& options, NodeEnvironment environment, Alarms& alarms,
             CallScope& scope, Worlds& worlds, Arena& arena, Persister& persister, KeptImages& kept)
    : options_(options),
      environment_(environment),
      alarms_(alarms),
      scope_(scope),
      worlds_(worlds),
      arena_(arena),
      persister_(persister),
      kept_(kept) {}

void Saves::BeginSave(const SessionPtr& session, v1::BeginSaveRequest request,
                      Done<v1::BeginSaveResponse> done) {
  if (absl::Status status = CheckSaveRequest(request); !status.ok()) {
    return std::move(done)(status);
  }
  absl::StatusOr<WorldView> world =
      worlds_.Find(*session, request.job(), request.attempt().epoch());
  if (!world.ok()) return std::move(done)(world.status());
  absl::StatusOr<CheckedLayoutPtr> layout = FindLayout(*session, *world, request);
  if (!layout.ok()) return std::move(done)(layout.status());
  if (*layout == nullptr) {
    v1::BeginSaveResponse response;
    response.set_need_layout(true);
    return std::move(done)(std::move(response));
  }
  if (absl::Status status = CheckSmallContents(**layout, request); !status.ok()) {
    return std::move(done)(status);
  }
  if (!request.overwrite() && worlds_.IsCommitted(request.job(), request.step())) {
    return AskIfCommitted(session, *layout, std::move(request), std::move(done));
  }
  Begin(session, *layout, std::move(request), std::move(done));
}

absl::StatusOr<CheckedLayoutPtr> Saves::FindLayout(const Session& session, const WorldView& world,
                                                   v1::BeginSaveRequest& request) {
  {
    absl::MutexLock lock(&mutex_);
    CheckedLayoutPtr known = memory_.FindLayout(world, request.fingerprint());
    // A rank that has nothing to save has a layout of no bytes.
    const bool given = !request.layout().empty() || request.fingerprint() == Sha256Of("");
    if (known != nullptr || !given) return known;
  }
  absl::StatusOr<CheckedLayoutPtr> checked =
      CheckSaveLayout(std::move(*request.mutable_layout()), request.fingerprint());
  if (!checked.ok()) return checked;
  absl::MutexLock lock(&mutex_);
  // Asked again under the lock: what is remembered for a session must be there when its end
  // comes by.
  absl::Status status = worlds_.Find(session, world.job, world.epoch).status();
  if (status.ok()) status = memory_.AddLayout(world, session.id, *checked);
  if (!status.ok()) return status;
  return checked;
}

void Saves::AskIfCommitted(const SessionPtr& session, const CheckedLayoutPtr& layout,
                           v1::BeginSaveRequest request, Done<v1::BeginSaveResponse> done) {
  v1::AuthorizedListCheckpoints ask;
  ask.set_user_id(session->user_id);
  ask.mutable_request()->set_job(request.job());
  environment_.coordinator.ListCheckpoints(
      std::move(ask),
      scope_.Wrap([this, session, layout, request = std::move(request), done = std::move(done)](
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
        Begin(session, layout, std::move(request), std::move(done));
      }));
}

void Saves::Begin(const SessionPtr& session, const CheckedLayoutPtr& layout,
                  v1::BeginSaveRequest request, Done<v1::BeginSaveResponse> done) {
  Later later;
  absl::MutexLock lock(&mutex_);
  // Only now, under the lock: a rank whose process ends from here on is seen by SessionEnded,
  // one whose process ended before is not alive in this view.
  absl::StatusOr<WorldView> world =
      worlds_.Find(*session, request.job(), request.attempt().epoch());
  if (!world.ok()) return later.Answer(std::move(done), world.status());
  absl::StatusOr<SaveAttemptPtr> attempt = FindOrCreate(*world, request);
  absl::Status status = attempt.status();
  if (status.ok()) status = AddRank(**attempt, *session, *world, layout, request, done);
  if (!status.ok()) return later.Answer(std::move(done), status);
  ShortenDeadline(*attempt, request.timeout_seconds());
  if (const std::vector<uint32_t> changed = (*attempt)->ChangedAlone(); !changed.empty()) {
    memory_.ForgetPlan(world->job, world->epoch);
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
  if (auto found = attempts_.find(key); found != attempts_.end()) {
    const SaveAttempt& known = *found->second;
    if (!known.error.ok()) return known.error;
    if (known.in_flight()) return found->second;
    return absl::InvalidArgumentError(absl::StrCat(known.Describe(options_.node_name),
                                                   " has ended already: save numbers must grow"));
  }
  if (absl::Status status = CheckNewAttempt(world, request); !status.ok()) return status;
  auto attempt = std::make_shared<SaveAttempt>();
  attempt->key = key;
  attempt->step = request.step();
  attempt->world = world;
  attempt->overwrite = request.overwrite();
  attempt->tags.insert(request.tags().begin(), request.tags().end());
  attempt->started = environment_.clock.Now();
  attempt->snapshot_finished = attempt->persist_finished = attempt->started;
  ShortenDeadline(attempt, request.timeout_seconds());
  for (const WorldMember& member : world.members) {
    RankPart& part = attempt->ranks[member.rank];
    part.session = member.session;
    part.process_id = member.process_id;
  }
  attempt->earlier_plan = memory_.Plan(world.job, world.epoch);
  attempts_[key] = attempt;
  ++in_flight_;
  environment_.probe.SaveStarted();
  memory_.ForgetOlderEpochs(world.job, world.epoch);
  return attempt;
}

// The shortest of the ranks' timeouts is the save's.
void Saves::ShortenDeadline(const SaveAttemptPtr& attempt, double timeout_seconds) {
  const absl::Time deadline = environment_.clock.Now() + absl::Seconds(timeout_seconds);
  if (deadline >= attempt->deadline) return;
  alarms_.Cancel(attempt->alarm);
  attempt->deadline = deadline;
  attempt->alarm = alarms_.At(deadline, [this, attempt] { DeadlinePassed(attempt); });
}

absl::Status Saves::CheckNewAttempt(const WorldView& world,
                                    const v1::BeginSaveRequest& request) const {
  if (draining_) {
    return absl::UnavailableError(
        absl::StrCat("node ", options_.node_name, " is draining: it takes no new saves"));
  }
  if (absl::Status status = CheckWhole(world); !status.ok()) return status;
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
  return memory_.CheckSaveNumber(world, request.attempt().save_number());
}

absl::Status Saves::AddRank(SaveAttempt& attempt, const Session& session, const WorldView& world,
                            const CheckedLayoutPtr& layout, v1::BeginSaveRequest& request,
                            Done<v1::BeginSaveResponse>& done) {
  if (attempt.step != request.step() || attempt.overwrite != request.overwrite()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", world.rank, " saves step ", request.step(),
        request.overwrite() ? " with overwrite" : "", " as save number ", attempt.key.save_number,
        ", and another rank step ", attempt.step, attempt.overwrite ? " with overwrite" : "",
        ": all ranks must call save() alike"));
  }
  absl::Status status = memory_.CheckSaveNumber(world, attempt.key.save_number);
  if (!status.ok()) return status;
  auto found = attempt.ranks.find(world.rank);
  if (found == attempt.ranks.end() || found->second.begun) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", world.rank,
                     found == attempt.ranks.end() ? " joined after " : " takes part already in ",
                     attempt.Describe(options_.node_name)));
  }
  memory_.UseSaveNumber(world, session.id, attempt.key.save_number);
  RankPart& part = found->second;
  part.session = session.id;
  part.process_id = session.process_id;
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
  if (attempt.in_flight() && request.error().empty() && part.answered &&
      attempt.LeasedEnd(rank) < attempt.plan->images.at(rank)->image_bytes()) {
    return later.Answer(std::move(done), absl::FailedPreconditionError(absl::StrCat(
                                             "rank ", rank, " has not copied all of its image")));
  }
  if (!std::exchange(part.finished, true)) {
    // No longer than the attempt: one trainer's number must not spoil the node's metrics.
    const double most = absl::ToDoubleSeconds(environment_.clock.Now() - attempt.started);
    const double blocked = request.blocked_seconds();
    part.blocked_seconds = blocked > 0 ? std::min(blocked, std::max(most, 0.0)) : 0.0;
    environment_.probe.StallReported(part.blocked_seconds);
  }
  if (attempt.in_flight() && !request.error().empty()) {
    Fail(*found,
         absl::AbortedError(absl::StrCat("the snapshot of rank ", rank, " failed: ",
                                         CutText(request.error(), kLongestErrorBytes))),
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

}  // namespace ckptd
