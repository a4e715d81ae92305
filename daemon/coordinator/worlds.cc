// Joining worlds, and recording those that are complete.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {

absl::StatusOr<std::string> Coordinator::Impl::ResolveStore(const std::string& name) const {
  if (name.empty() && options_.stores.size() == 1) return options_.stores.begin()->first;
  const std::string wanted = name.empty() ? "default" : name;
  if (options_.stores.count(wanted) > 0) return wanted;
  std::string known;
  for (const auto& [store, folder] : options_.stores) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", store);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no store called ", wanted, "; configured are: ", known));
}

void Coordinator::Impl::JoinWorld(const v1::JoinWorldRequest& given,
                                  Done<v1::JoinWorldResponse> done) {
  absl::StatusOr<std::string> store = ResolveStore(given.store());
  absl::Status status = CheckJoin(given);
  if (status.ok()) status = store.status();
  if (!status.ok()) return done(status);
  v1::JoinWorldRequest request = given;
  request.set_store(*store);

  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  if (status = CheckServing(); !status.ok()) return deferred.Answer(std::move(done), status);
  if (request.reader()) return JoinReader(request, std::move(done), deferred);
  Job& job = jobs_[request.job()];
  job.name = request.job();
  if (status = CheckOwner(job, request.owner().user_id()); !status.ok()) {
    return deferred.Answer(std::move(done), status);
  }
  const WorldTable::CallId call = next_id_++;
  absl::StatusOr<WorldTable::Outcome> outcome = job.table.Join(call, request);
  if (!outcome.ok()) {
    ForgetUnusedJob(request.job());
    return deferred.Answer(std::move(done), outcome.status());
  }
  if (!job.has_owner) {
    job.owner = request.owner();
    job.has_owner = true;
  }
  for (WorldTable::CallId displaced : outcome->displaced) {
    JoinFailed(
        job, displaced,
        absl::AbortedError(absl::StrCat("another process of node ", request.node(), " joined job ",
                                        request.job(), " in this one's place")),
        deferred);
  }
  JoinCall waiting{std::move(request), std::move(done), 0, clock_.Now()};
  if (outcome->state == WorldTable::State::kMember) {
    if (job.world_recorded) {
      return deferred.Answer(
          std::move(waiting.done),
          absl::StatusOr<v1::JoinWorldResponse>(MakeJoinResponse(job, waiting.request.node())));
    }
    job.waiting_for_record.push_back(std::move(waiting));
    return RecordWorld(job, deferred);
  }
  waiting.alarm = SetAlarm(DeadlineIn(given.timeout_seconds()),
                           [name = job.name, call](Impl& impl) { impl.JoinTimedOut(name, call); });
  job.joins.emplace(call, std::move(waiting));
  if (outcome->state == WorldTable::State::kFormed) WorldFormed(job, outcome->joined, deferred);
}

void Coordinator::Impl::JoinReader(const v1::JoinWorldRequest& request,
                                   Done<v1::JoinWorldResponse> done, Deferred& deferred) {
  if (request.world_size() != 1) {
    return deferred.Answer(std::move(done),
                           absl::InvalidArgumentError(absl::StrCat(
                               "a reader is a world of one, not of ", request.world_size())));
  }
  Job* job = FindJob(request.job());
  v1::JoinWorldResponse response;
  if (job != nullptr) {
    absl::Status status = CheckOwner(*job, request.owner().user_id());
    if (!status.ok()) return deferred.Answer(std::move(done), status);
    response = MakeReaderResponse(*job);
  }
  deferred.Answer(std::move(done), absl::StatusOr<v1::JoinWorldResponse>(std::move(response)));
}

void Coordinator::Impl::JoinFailed(Job& job, WorldTable::CallId call, absl::Status status,
                                   Deferred& deferred) {
  job.table.Leave(call);
  auto it = job.joins.find(call);
  if (it == job.joins.end()) return;
  CancelAlarm(it->second.alarm);
  deferred.Answer(std::move(it->second.done), std::move(status));
  job.joins.erase(it);
}

void Coordinator::Impl::JoinTimedOut(const std::string& name, WorldTable::CallId call) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job* job = FindJob(name);
  if (job == nullptr || job->joins.count(call) == 0) return;
  const std::string missing = job->table.DescribeMissing(call);
  JoinFailed(*job, call,
             absl::DeadlineExceededError(absl::StrCat("joining job ", name, ": ", missing)),
             deferred);
  ForgetUnusedJob(name);
}

// A job that never had a world: its name is free again.
void Coordinator::Impl::ForgetUnusedJob(const std::string& name) {
  Job* job = FindJob(name);
  if (job == nullptr || !job->table.empty() || job->table.last_epoch() > 0) return;
  if (job->checkpoints.empty() && job->joins.empty()) jobs_.erase(name);
}

void Coordinator::Impl::WorldFormed(Job& job, const std::vector<WorldTable::CallId>& joined,
                                    Deferred& deferred) {
  const std::shared_ptr<const World>& world = job.table.current();
  job.worlds[world->epoch] = world;
  CancelAlarm(job.settling.grace_alarm);
  job.settling = {.new_world = world};
  absl::Time since = clock_.Now();
  for (WorldTable::CallId call : joined) {
    JoinCall& join = job.joins.at(call);
    CancelAlarm(join.alarm);
    since = std::min(since, join.since);
    NoteUnfinished(job, join.request);
    job.waiting_for_record.push_back(std::move(join));
    job.joins.erase(call);
  }
  probe_.WorldFormed(job.name, world->size(), absl::ToDoubleSeconds(clock_.Now() - since));
  std::vector<LoadKey> superseded;
  for (const auto& [key, load] : job.loads) {
    if (key.epoch != 0) superseded.push_back(key);
  }
  for (LoadKey key : superseded) {
    FailLoad(job, key,
             absl::FailedPreconditionError(absl::StrCat("epoch ", key.epoch, " of job ", job.name,
                                                        " was superseded by epoch ", world->epoch)),
             deferred);
  }
  job.world_recorded = false;
  RecordWorld(job, deferred);
  TrySettle(job, deferred);
}

void Coordinator::Impl::RecordWorld(Job& job, Deferred& deferred) {
  if (job.recording_world) return;
  job.recording_world = true;
  absl::Status status = writer_.Submit([this, name = job.name] {
    v1::JobRecord record;
    {
      absl::MutexLock lock(&mutex_);
      record = MakeJobRecord(*FindJob(name));
    }
    WorldRecorded(name, catalog_->PutJob(record));
  });
  if (status.ok()) return;
  job.recording_world = false;
  for (JoinCall& join : std::exchange(job.waiting_for_record, {})) {
    deferred.Answer(std::move(join.done), status);
  }
}

void Coordinator::Impl::WorldRecorded(const std::string& name, const absl::Status& status) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job& job = *FindJob(name);
  job.recording_world = false;
  // A resent join tries again.
  if (status.ok()) job.world_recorded = true;
  for (JoinCall& join : std::exchange(job.waiting_for_record, {})) {
    if (!status.ok()) {
      deferred.Answer(std::move(join.done), status);
    } else if (!job.table.IsOfCurrent(join.request)) {
      deferred.Answer(std::move(join.done), absl::FailedPreconditionError(absl::StrCat(
                                                "a newer run of job ", name,
                                                " was complete before this one was recorded")));
    } else {
      deferred.Answer(std::move(join.done), absl::StatusOr<v1::JoinWorldResponse>(
                                                MakeJoinResponse(job, join.request.node())));
    }
  }
}

}  // namespace ckptd
