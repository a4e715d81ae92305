// Who is in which world, who waits for whom to come into it, and what is known of its job.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/worlds.h"

namespace ckptd {
namespace {

absl::Status EndedError(const std::string& job, const WorldMember& member) {
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", member.rank, " (process ", member.process_id, ") of job ", job,
                   " has ended: the world is not whole, start the run again"));
}

absl::Status OverError(const std::string& job, uint64_t epoch, uint64_t newest_epoch) {
  return absl::FailedPreconditionError(
      absl::StrCat("epoch ", epoch, " of job ", job, " is over: epoch ", newest_epoch,
                   " has begun; this process is left over from an older run"));
}

}  // namespace

absl::Status CheckWhole(const WorldView& world) {
  for (const WorldMember& member : world.members) {
    if (!member.alive) return EndedError(world.job, member);
  }
  return absl::OkStatus();
}

void Worlds::Admit(Call& call, const v1::JoinWorldResponse& answer, Later& later) {
  const std::string name = call.front().request.job();
  const uint64_t epoch = answer.epoch();
  Job& job = jobs_[name];
  if (epoch > job.newest_epoch) Supersede(name, epoch, later);
  if (epoch != 0 && epoch < job.newest_epoch) {
    for (Joiner& joiner : call) {
      if (!joiner.alive) continue;
      later.Answer(std::move(joiner.done), OverError(name, epoch, job.newest_epoch));
    }
    return;
  }
  const WorldKey key(epoch, epoch == 0 ? call.front().session->id : 0);
  World& world = job.worlds[key];
  world.expected.assign(answer.node_ranks().begin(), answer.node_ranks().end());
  for (Joiner& joiner : call) {
    const v1::JoinRequest& request = joiner.request;
    world.store = request.store();
    world.world_size = request.world_size();
    world.owner = {joiner.session->user_id, joiner.session->group_id};
    // The dead, too: the others must not wait for them.
    world.members[request.rank()] = {.rank = request.rank(),
                                     .session = joiner.session->id,
                                     .process_id = joiner.session->process_id,
                                     .alive = joiner.alive};
    if (joiner.alive) Hold(world, key, std::move(joiner), later);
  }
  job.committed_steps.clear();
  job.committed_steps.insert(answer.committed_steps().begin(), answer.committed_steps().end());
  AnswerHeldIfDecided(name, epoch, world, later);
}

void Worlds::Supersede(const std::string& name, uint64_t epoch, Later& later) {
  Job& job = jobs_[name];
  job.newest_epoch = epoch;
  for (auto it = job.worlds.begin(); it != job.worlds.end();) {
    if (it->first.first == 0) {  // a reader's
      ++it;
      continue;
    }
    AnswerHeld(it->second, OverError(name, it->first.first, epoch), later);
    it = job.worlds.erase(it);
  }
}

void Worlds::Hold(World& world, WorldKey key, Joiner joiner, Later& later) {
  const uint32_t rank = joiner.request.rank();
  auto same = std::find_if(world.held.begin(), world.held.end(),
                           [&](const Joiner& other) { return other.request.rank() == rank; });
  if (same != world.held.end()) {
    (void)EndHeld(world, same->session->id,
                  absl::AbortedError(absl::StrCat("rank ", rank, " has joined again")), later);
  }
  joiner.alarm =
      alarms_.At(joiner.deadline, [this, job = joiner.request.job(), key, id = joiner.session->id] {
        HeldExpired(job, key, id);
      });
  world.held.push_back(std::move(joiner));
}

void Worlds::AnswerHeldIfDecided(const std::string& job, uint64_t epoch, World& world,
                                 Later& later) {
  bool all_are_here = true;
  for (uint32_t rank : world.expected) {
    auto member = world.members.find(rank);
    if (member == world.members.end()) {
      all_are_here = false;
    } else if (!member->second.alive) {
      return AnswerHeld(world, EndedError(job, member->second), later);
    }
  }
  if (!all_are_here) return;
  v1::JoinResponse response;
  response.set_epoch(epoch);
  AnswerHeld(world, response, later);
}

void Worlds::AnswerHeld(World& world, const absl::StatusOr<v1::JoinResponse>& answer,
                        Later& later) {
  for (Joiner& joiner : std::exchange(world.held, {})) {
    alarms_.Cancel(joiner.alarm);
    later.Answer(std::move(joiner.done), answer);
  }
}

bool Worlds::EndHeld(World& world, SessionId session, const absl::Status& status, Later& later) {
  auto held = std::find_if(world.held.begin(), world.held.end(),
                           [&](const Joiner& joiner) { return joiner.session->id == session; });
  if (held == world.held.end()) return false;
  alarms_.Cancel(held->alarm);
  later.Answer(std::move(held->done), status);
  world.held.erase(held);
  return true;
}

// It stays a member: whoever comes later need not wait for its next try.
void Worlds::HeldExpired(const std::string& name, WorldKey key, SessionId session) {
  Later later;
  absl::MutexLock lock(&mutex_);
  auto job = jobs_.find(name);
  if (job == jobs_.end()) return;
  auto found = job->second.worlds.find(key);
  if (found == job->second.worlds.end()) return;
  World& world = found->second;
  const bool is_over = std::any_of(world.held.begin(), world.held.end(), [&](const Joiner& joiner) {
    return joiner.session->id == session && joiner.deadline <= clock_.Now();
  });
  if (!is_over) return;  // it has joined again
  std::vector<uint32_t> missing;
  for (uint32_t rank : world.expected) {
    if (!world.members.contains(rank)) missing.push_back(rank);
  }
  (void)EndHeld(world, session,
                absl::DeadlineExceededError(absl::StrCat(
                    "joining epoch ", key.first, " of job ", name, " on node ", options_.node_name,
                    ": waited for rank ", absl::StrJoin(missing, ", "),
                    " of this node, which has not joined here")),
                later);
}

// A world without a living member is forgotten.
void Worlds::EndMembers(SessionId session, Later& later) {
  const absl::Status ended = absl::CancelledError("the process has ended");
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    for (auto world = job->second.worlds.begin(); world != job->second.worlds.end();) {
      (void)EndHeld(world->second, session, ended, later);
      bool any_alive = false;
      for (auto& [rank, member] : world->second.members) {
        if (member.session == session) member.alive = false;
        any_alive |= member.alive;
      }
      AnswerHeldIfDecided(job->first, world->first.first, world->second, later);
      world = any_alive ? std::next(world) : job->second.worlds.erase(world);
    }
    job = job->second.worlds.empty() ? jobs_.erase(job) : std::next(job);
  }
}

absl::StatusOr<WorldView> Worlds::Find(const Session& session, const std::string& job,
                                       uint64_t epoch) const {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  const WorldKey key(epoch, epoch == 0 ? session.id : 0);
  if (found != jobs_.end() && epoch != 0 && epoch < found->second.newest_epoch) {
    return OverError(job, epoch, found->second.newest_epoch);
  }
  if (found != jobs_.end()) {
    if (auto world = found->second.worlds.find(key); world != found->second.worlds.end()) {
      WorldView view{.job = job,
                     .store = world->second.store,
                     .epoch = epoch,
                     .world_size = world->second.world_size,
                     .owner = world->second.owner};
      bool is_member = false;
      for (const auto& [rank, member] : world->second.members) {
        view.members.push_back(member);
        if (member.session != session.id) continue;
        is_member = true;
        view.rank = rank;
      }
      if (is_member) return view;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("process ", session.process_id, " has not joined epoch ", epoch, " of job ",
                   job.substr(0, 128), " on node ", options_.node_name, ": join first"));
}

bool Worlds::HasJoined(SessionId session, const std::string& job) const {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) return false;
  for (const auto& [key, world] : found->second.worlds) {
    for (const auto& [rank, member] : world.members) {
      if (member.session == session && member.alive) return true;
    }
  }
  return false;
}

bool Worlds::IsCommitted(const std::string& job, uint64_t step) const {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.committed_steps.contains(step);
}

void Worlds::SetCommitted(const std::string& job, uint64_t step, bool committed) {
  absl::MutexLock lock(&mutex_);
  auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  if (committed) {
    found->second.committed_steps.insert(step);
  } else {
    found->second.committed_steps.erase(step);
  }
}

void Worlds::Describe(SessionId session, v1::SessionStatus& status) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [name, job] : jobs_) {
    for (const auto& [key, world] : job.worlds) {
      for (const auto& [rank, member] : world.members) {
        if (member.session != session) continue;
        status.set_job(name);
        status.set_rank(rank);
        status.set_epoch(key.first);
        status.set_copy_path("host lease");
      }
    }
  }
}

}  // namespace ckptd
