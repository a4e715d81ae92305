#include "daemon/coordinator/world.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

bool SameProcess(const World& world, const v1::JoinWorldRequest& request,
                 const v1::Member& member) {
  return world.run_token == request.run_token() && member.rank() < world.size() &&
         world.members[member.rank()].process_nonce() == member.process_nonce();
}

}  // namespace

std::shared_ptr<const World> MakeWorld(const v1::WorldRecord& record) {
  auto world = std::make_shared<World>();
  world->epoch = record.epoch();
  world->run_token = record.run_token();
  world->store = record.store();
  world->members.assign(record.members().begin(), record.members().end());
  for (uint32_t rank = 0; rank < world->size(); ++rank) {
    world->ranks_of_node[world->members[rank].node()].push_back(rank);
  }
  return world;
}

void WorldTable::Restore(uint64_t last_epoch, std::shared_ptr<const World> current) {
  last_epoch_ = last_epoch;
  current_ = std::move(current);
}

absl::StatusOr<WorldTable::Outcome> WorldTable::Join(CallId call,
                                                     const v1::JoinWorldRequest& request) {
  if (IsOfCurrent(request)) {
    if (absl::Status status = CheckSameNode(request); !status.ok()) return status;
    return Outcome{.state = State::kMember};
  }
  if (absl::Status status = CheckNotSuperseded(request); !status.ok()) return status;
  auto it = forming_.find(request.run_token());
  if (it == forming_.end()) {
    if (forming_.size() >= kMaxFormingWorlds) {
      return absl::ResourceExhaustedError(
          absl::StrCat(forming_.size(), " worlds of job ", request.job(),
                       " are waiting for ranks already; end the runs that never became complete"));
    }
    it = forming_.emplace(request.run_token(), Forming{}).first;
    it->second.world_size = request.world_size();
    it->second.store = request.store();
  } else if (absl::Status status = CheckAgainst(it->second, request); !status.ok()) {
    return status;
  }
  Forming& forming = it->second;
  Outcome outcome{.displaced = Displace(forming, request)};
  forming.calls[call] = true;
  for (const v1::Member& member : request.members()) {
    forming.members[member.rank()] = {member.process_nonce(), request.node(), call};
    forming.gave_up.erase(member.rank());
  }
  forming.held_epoch = std::max(forming.held_epoch, request.newest_epoch());
  for (const v1::UnfinishedAttempt& held : request.unfinished()) {
    forming.held_epoch = std::max(forming.held_epoch, held.attempt().epoch());
  }
  if (forming.members.size() < forming.world_size) return outcome;
  outcome.state = State::kFormed;
  for (const auto& [waiting, unused] : forming.calls) outcome.joined.push_back(waiting);
  Forming complete = std::move(forming);
  forming_.erase(it);
  MakeCurrent(request.run_token(), std::move(complete));
  return outcome;
}

bool WorldTable::IsOfCurrent(const v1::JoinWorldRequest& request) const {
  if (current_ == nullptr || current_->size() != request.world_size()) return false;
  return std::all_of(
      request.members().begin(), request.members().end(),
      [&](const v1::Member& member) { return SameProcess(*current_, request, member); });
}

absl::Status WorldTable::CheckSameNode(const v1::JoinWorldRequest& request) const {
  for (const v1::Member& member : request.members()) {
    const std::string& node = current_->members[member.rank()].node();
    if (node == request.node()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", member.rank(), " of job ", request.job(), " joined epoch ",
                     current_->epoch, " on node ", node, " and now joins on node ", request.node(),
                     ": start the node daemon under its earlier name, or the run again"));
  }
  return absl::OkStatus();
}

absl::Status WorldTable::CheckNotSuperseded(const v1::JoinWorldRequest& request) const {
  if (superseded_ == nullptr) return absl::OkStatus();
  for (const v1::Member& member : request.members()) {
    if (!SameProcess(*superseded_, request, member)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", member.rank(), " of job ", request.job(), " on node ", request.node(),
                     " belongs to epoch ", superseded_->epoch, ", but a newer run has epoch ",
                     current_->epoch, ": end this left-over process"));
  }
  return absl::OkStatus();
}

absl::Status WorldTable::CheckAgainst(const Forming& forming, const v1::JoinWorldRequest& request) {
  if (forming.world_size != request.world_size() || forming.store != request.store()) {
    return absl::FailedPreconditionError(
        absl::StrCat("node ", request.node(), " joins job ", request.job(), " with world size ",
                     request.world_size(), " and store ", request.store(),
                     ", but others with the same run token ", request.run_token(),
                     " have world size ", forming.world_size, " and store ", forming.store));
  }
  for (const v1::Member& member : request.members()) {
    auto it = forming.members.find(member.rank());
    if (it == forming.members.end() || it->second.node == request.node()) continue;
    return absl::AlreadyExistsError(absl::StrCat("rank ", member.rank(), " of job ", request.job(),
                                                 " has joined from node ", it->second.node,
                                                 " and now joins from node ", request.node(),
                                                 ": give every process its own rank"));
  }
  return absl::OkStatus();
}

// Another process in a rank's place means that the earlier one is gone: the call
// that brought it can't succeed any more. The same process sending again is no such case.
std::vector<WorldTable::CallId> WorldTable::Displace(Forming& forming,
                                                     const v1::JoinWorldRequest& request) {
  std::set<CallId> displaced;
  for (const v1::Member& member : request.members()) {
    auto it = forming.members.find(member.rank());
    if (it != forming.members.end() && it->second.nonce != member.process_nonce()) {
      displaced.insert(it->second.call);
    }
  }
  for (CallId call : displaced) {
    forming.calls.erase(call);
    std::erase_if(forming.members, [call](const auto& it) { return it.second.call == call; });
  }
  return {displaced.begin(), displaced.end()};
}

void WorldTable::MakeCurrent(const std::string& token, Forming forming) {
  v1::WorldRecord record;
  last_epoch_ = std::max(last_epoch_, forming.held_epoch) + 1;
  record.set_epoch(last_epoch_);
  record.set_run_token(token);
  record.set_store(forming.store);
  for (auto& [rank, member] : forming.members) {
    v1::MemberRecord* recorded = record.add_members();
    recorded->set_process_nonce(std::move(member.nonce));
    recorded->set_node(std::move(member.node));
  }
  superseded_ = std::exchange(current_, MakeWorld(record));
}

void WorldTable::Leave(CallId call) {
  for (auto it = forming_.begin(); it != forming_.end();) {
    Forming& forming = it->second;
    if (forming.calls.erase(call) > 0) {
      for (const auto& [rank, member] : forming.members) {
        if (member.call == call) forming.gave_up.insert(rank);
      }
      std::erase_if(forming.members, [call](const auto& at) { return at.second.call == call; });
    }
    it = forming.calls.empty() ? forming_.erase(it) : std::next(it);
  }
}

std::string WorldTable::DescribeMissing(CallId call) const {
  for (const auto& [token, forming] : forming_) {
    if (forming.calls.count(call) == 0) continue;
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; rank < forming.world_size; ++rank) {
      if (forming.members.count(rank) == 0 && forming.gave_up.count(rank) == 0) {
        missing.push_back(rank);
      }
    }
    const std::vector<uint32_t> gone(forming.gave_up.begin(), forming.gave_up.end());
    return absl::StrCat(
        missing.empty()
            ? ""
            : absl::StrCat(RanksToString(missing), " of ", forming.world_size, " never joined"),
        missing.empty() || gone.empty() ? "" : "; ",
        gone.empty() ? "" : absl::StrCat(RanksToString(gone), " joined and waits no more"));
  }
  return "no rank is missing";
}

absl::Status CheckJoin(const v1::JoinWorldRequest& request) {
  if (absl::Status status = ValidateJobName(request.job()); !status.ok()) return status;
  if (absl::Status status = ValidateNodeName(request.node()); !status.ok()) return status;
  if (request.world_size() == 0 || request.world_size() > kMaxWorldSize) {
    return absl::InvalidArgumentError(absl::StrCat("a world size of ", request.world_size(),
                                                   " is not between 1 and ", kMaxWorldSize));
  }
  if (request.run_token().size() > kMaxTokenBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a run token of ", request.run_token().size(),
                                                   " bytes is above ", kMaxTokenBytes));
  }
  if (request.members().empty()) return absl::InvalidArgumentError("a join without members");
  std::set<uint32_t> ranks;
  for (const v1::Member& member : request.members()) {
    if (member.rank() >= request.world_size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", member.rank(), " is not in a world of ", request.world_size()));
    }
    if (!ranks.insert(member.rank()).second) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", member.rank(), " joins twice"));
    }
    if (member.process_nonce().empty() || member.process_nonce().size() > kMaxNonceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("the process nonce of rank ", member.rank(),
                                                     " has ", member.process_nonce().size(),
                                                     " bytes, not 1 to ", kMaxNonceBytes));
    }
  }
  return absl::OkStatus();
}

}  // namespace ckptd
