// How ranks join. Who is in which world is in world_members.cc.
#include "daemon/node/worlds.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/limits.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

constexpr int kNonceBytes = 16;

}  // namespace

Worlds::Worlds(const NodeOptions& options, const Clock& clock, Alarms& alarms,
               CoordinatorClient& coordinator, CallScope& scope, const Sessions& sessions,
               UnfinishedAttempts unfinished)
    : options_(options),
      clock_(clock),
      alarms_(alarms),
      coordinator_(coordinator),
      scope_(scope),
      sessions_(sessions),
      unfinished_(std::move(unfinished)) {}

absl::Status Worlds::Check(const v1::JoinRequest& request) const {
  if (absl::Status status = ValidateJobName(request.job()); !status.ok()) return status;
  if (!options_.stores.contains(request.store())) {
    return absl::NotFoundError(absl::StrCat(
        "node ", options_.node_name, " has no store named \"", request.store().substr(0, 64),
        "\"; it has: ",
        absl::StrJoin(options_.stores, ", ",
                      [](std::string* out, const auto& store) { out->append(store.first); })));
  }
  if (request.world_size() == 0 || request.rank() >= request.world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", request.rank(), " in a world of size ", request.world_size()));
  }
  if (request.local_world_size() > request.world_size()) {
    return absl::InvalidArgumentError(absl::StrCat("local_world_size ", request.local_world_size(),
                                                   " is above world_size ", request.world_size()));
  }
  if (request.process_nonce().size() != kNonceBytes ||
      request.run_token().size() > kLongestTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("process_nonce must have ", kNonceBytes,
                                                   " bytes and run_token at most ",
                                                   kLongestTokenBytes));
  }
  return CheckTimeout(request.timeout_seconds()).status();
}

void Worlds::Join(SessionPtr session, v1::JoinRequest request, Done<v1::JoinResponse> done) {
  if (absl::Status status = Check(request); !status.ok()) return std::move(done)(status);
  const GroupKey key(request.job(), request.store(), request.world_size(), request.run_token(),
                     session->user_id, session->group_id, request.reader() ? session->id : 0);
  Later later;
  absl::MutexLock lock(&mutex_);
  if (absl::Status status = MayJoin(*session, request); !status.ok()) {
    return later.Answer(std::move(done), status);
  }
  const absl::Time deadline = clock_.Now() + absl::Seconds(request.timeout_seconds());
  Collect(key,
          {.session = std::move(session),
           .request = std::move(request),
           .done = std::move(done),
           .deadline = deadline},
          later);
}

absl::Status Worlds::MayJoin(const Session& session, const v1::JoinRequest& request) const {
  if (draining_) return absl::UnavailableError("the node daemon is shutting down");
  // Under the lock: a session that ends from here on is seen by SessionEnded.
  if (absl::Status alive = sessions_.Find(session.token).status(); !alive.ok()) return alive;
  size_t worlds = 0;
  for (const auto& [key, group] : groups_) {
    for (const Joiner& joiner : group.collecting) worlds += joiner.session->id == session.id;
    for (const std::shared_ptr<Call>& call : group.calls) {
      for (const Joiner& joiner : *call) worlds += joiner.session->id == session.id;
    }
  }
  for (const auto& [name, job] : jobs_) {
    for (const auto& [key, world] : job.worlds) {
      for (const auto& [rank, member] : world.members) {
        if (member.session != session.id) continue;
        ++worlds;
        if (name == request.job() && rank != request.rank() && !request.reader() &&
            key.first == job.newest_epoch) {
          return absl::FailedPreconditionError(
              absl::StrCat("process ", session.process_id, " is rank ", rank, " of job ", name,
                           " already; rank ", request.rank(), " is another process's"));
        }
      }
    }
  }
  if (worlds < kMostWorldsPerSession) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("process ", session.process_id, " is in ", worlds,
                   " jobs' worlds, the limit: use another process for more"));
}

void Worlds::Collect(const GroupKey& key, Joiner joiner, Later& later) {
  Group& group = groups_[key];
  const uint32_t rank = joiner.request.rank();
  const uint32_t wanted = joiner.request.reader() ? 1 : joiner.request.local_world_size();
  auto same = std::find_if(group.collecting.begin(), group.collecting.end(),
                           [&](const Joiner& other) { return other.request.rank() == rank; });
  if (same != group.collecting.end()) {
    later.Answer(std::move(same->done),
                 absl::AbortedError(absl::StrCat("another process (", joiner.session->process_id,
                                                 ") has joined as rank ", rank)));
    alarms_.Cancel(same->alarm);
    group.collecting.erase(same);
  }
  joiner.alarm = alarms_.At(joiner.deadline,
                            [this, key, id = joiner.session->id] { CollectingExpired(key, id); });
  group.collecting.push_back(std::move(joiner));
  if (wanted == 0 || group.collecting.size() >= wanted) Send(key, group, later);
}

void Worlds::Send(const GroupKey& key, Group& group, Later& later) {
  auto call = std::make_shared<Call>(std::exchange(group.collecting, {}));
  v1::JoinWorldRequest request;
  const v1::JoinRequest& first = call->front().request;
  const Session& session = *call->front().session;
  request.set_job(first.job());
  request.set_store(first.store());
  request.set_world_size(first.world_size());
  request.set_run_token(first.run_token());
  request.set_node(options_.node_name);
  request.mutable_owner()->set_user_id(session.user_id);
  request.mutable_owner()->set_group_id(session.group_id);
  request.set_reader(first.reader());
  if (auto job = jobs_.find(first.job()); job != jobs_.end()) {
    request.set_newest_epoch(job->second.newest_epoch);
  }
  double timeout_seconds = kLongestTimeoutSeconds;
  for (Joiner& joiner : *call) {
    alarms_.Cancel(joiner.alarm);
    v1::Member* member = request.add_members();
    member->set_rank(joiner.request.rank());
    member->set_process_nonce(joiner.request.process_nonce());
    timeout_seconds = std::min(timeout_seconds, joiner.request.timeout_seconds());
  }
  request.set_timeout_seconds(timeout_seconds);
  group.calls.insert(call);
  // Outside the lock: what is unfinished is asked of others, and the answer may
  // come at once.
  later.Add([this, key, call, request = std::move(request)]() mutable {
    for (v1::UnfinishedAttempt& attempt : unfinished_(request.job())) {
      *request.add_unfinished() = std::move(attempt);
    }
    coordinator_.JoinWorld(std::move(request),
                           scope_.Wrap([this, key, call](absl::StatusOr<v1::JoinWorldResponse> a) {
                             Answered(key, call, std::move(a));
                           }));
  });
}

void Worlds::CollectingExpired(const GroupKey& key, SessionId session) {
  Later later;
  absl::MutexLock lock(&mutex_);
  auto group = groups_.find(key);
  if (group == groups_.end()) return;
  std::vector<Joiner>& collecting = group->second.collecting;
  auto it = std::find_if(collecting.begin(), collecting.end(),
                         [&](const Joiner& joiner) { return joiner.session->id == session; });
  if (it == collecting.end()) return;
  later.Answer(std::move(it->done), absl::DeadlineExceededError(absl::StrCat(
                                        "joining the world of job ", std::get<0>(key), " on node ",
                                        options_.node_name, ": ", DescribeWaiting(group->second))));
  collecting.erase(it);
  EraseIfEmpty(key);
}

std::string Worlds::DescribeWaiting(const Group& group) {
  std::vector<uint32_t> ranks;
  for (const Joiner& joiner : group.collecting) ranks.push_back(joiner.request.rank());
  std::sort(ranks.begin(), ranks.end());
  return absl::StrCat("of ", group.collecting.front().request.local_world_size(),
                      " local ranks only these have joined: ", absl::StrJoin(ranks, ", "));
}

void Worlds::Answered(const GroupKey& key, const std::shared_ptr<Call>& call,
                      absl::StatusOr<v1::JoinWorldResponse> answer) {
  Later later;
  absl::MutexLock lock(&mutex_);
  if (auto group = groups_.find(key); group != groups_.end()) {
    group->second.calls.erase(call);
    EraseIfEmpty(key);
  }
  if (answer.ok()) return Admit(*call, *answer, later);
  for (Joiner& joiner : *call) {
    if (joiner.alive) later.Answer(std::move(joiner.done), answer.status());
  }
}

void Worlds::EraseIfEmpty(const GroupKey& key) {
  auto group = groups_.find(key);
  if (group->second.collecting.empty() && group->second.calls.empty()) groups_.erase(group);
}

void Worlds::SessionEnded(const Session& session) {
  Later later;
  absl::MutexLock lock(&mutex_);
  std::vector<GroupKey> keys;
  for (auto& [key, group] : groups_) {
    keys.push_back(key);
    EndJoiners(group, session.id, later);
  }
  for (const GroupKey& key : keys) EraseIfEmpty(key);
  EndMembers(session.id, later);
}

void Worlds::EndJoiners(Group& group, SessionId session, Later& later) {
  const absl::Status ended = absl::CancelledError("the process has ended");
  for (auto it = group.collecting.begin(); it != group.collecting.end();) {
    if (it->session->id != session) {
      ++it;
      continue;
    }
    alarms_.Cancel(it->alarm);
    later.Answer(std::move(it->done), ended);
    it = group.collecting.erase(it);
  }
  for (const std::shared_ptr<Call>& call : group.calls) {
    for (Joiner& joiner : *call) {
      if (joiner.session->id != session || !std::exchange(joiner.alive, false)) continue;
      later.Answer(std::move(joiner.done), ended);
    }
  }
}

void Worlds::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
}

void Worlds::Stop() {
  Later later;
  absl::MutexLock lock(&mutex_);
  draining_ = true;
  const absl::Status status = absl::UnavailableError("the node daemon is shutting down");
  for (auto& [key, group] : groups_) {
    for (Joiner& joiner : group.collecting) {
      alarms_.Cancel(joiner.alarm);
      later.Answer(std::move(joiner.done), status);
    }
    for (const std::shared_ptr<Call>& call : group.calls) {
      for (Joiner& joiner : *call) {
        if (std::exchange(joiner.alive, false)) later.Answer(std::move(joiner.done), status);
      }
    }
  }
  groups_.clear();
  for (auto& [name, job] : jobs_) {
    for (auto& [key, world] : job.worlds) AnswerHeld(world, status, later);
  }
}

}  // namespace ckptd
