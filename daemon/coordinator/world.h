// The worlds of one job: which processes are its ranks, and since which epoch.
// A pure state machine: no clock, no I/O, no threads; the caller answers the calls
// and records what is formed.
//
// - A world is complete when all ranks of one run token have joined. Every complete
//   world gets one epoch more than any before and supersedes the one before it. An epoch
//   of which a joining node still holds an attempt counts: its catalog may have been lost.
// - A process is known by its nonce. The same processes joining again are the same
//   world; other processes under the same token are another generation of it.
// - While a world forms, a rank belongs to the call that brought it: when that call
//   leaves (its deadline passed), so do its ranks.
#ifndef CKPTD_DAEMON_COORDINATOR_WORLD_H_
#define CKPTD_DAEMON_COORDINATOR_WORLD_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/catalog.pb.h"
#include "ckptd/v1/coordinator.pb.h"

namespace ckptd {

inline constexpr uint32_t kMaxWorldSize = 1 << 20;
inline constexpr size_t kMaxFormingWorlds = 16;
inline constexpr size_t kMaxTokenBytes = 1024;
inline constexpr size_t kMaxNonceBytes = 64;

// A complete world. Immutable.
struct World {
  uint64_t epoch = 0;
  std::string run_token;
  std::string store;
  std::vector<v1::MemberRecord> members;                       // by rank
  std::map<std::string, std::vector<uint32_t>> ranks_of_node;  // ascending

  uint32_t size() const { return static_cast<uint32_t>(members.size()); }
  bool HasNode(const std::string& node) const { return ranks_of_node.count(node) > 0; }
};

std::shared_ptr<const World> MakeWorld(const v1::WorldRecord& record);

class WorldTable {
 public:
  using CallId = uint64_t;

  enum class State {
    kMember,   // of the current world already
    kWaiting,  // for ranks that have not joined
    kFormed,   // this call completed a world: it is the current one now
  };
  struct Outcome {
    State state = State::kWaiting;
    // kFormed: all calls that waited for it, this one included.
    std::vector<CallId> joined;
    // Calls of processes that were replaced by this call's: to be answered, once.
    std::vector<CallId> displaced;
  };

  // After a restart of the coordinator.
  void Restore(uint64_t last_epoch, std::shared_ptr<const World> current);

  // `request` has passed CheckJoin and is no reader's. An error changes nothing:
  // FAILED_PRECONDITION for processes of a superseded world (naming both epochs), for
  // those of the current one on another node than then, and for another world size or
  // store than the token's others; ALREADY_EXISTS for a rank that another node holds;
  // RESOURCE_EXHAUSTED for too many forming.
  absl::StatusOr<Outcome> Join(CallId call, const v1::JoinWorldRequest& request);
  // The call was answered: its ranks leave, unless the world is complete.
  void Leave(CallId call);
  // For the deadline's message: "ranks 2-3 of 4 have not joined".
  std::string DescribeMissing(CallId call) const;

  uint64_t last_epoch() const { return last_epoch_; }
  // Are all that join the processes of the current world?
  bool IsOfCurrent(const v1::JoinWorldRequest& request) const;
  // Null before the first.
  const std::shared_ptr<const World>& current() const { return current_; }
  bool empty() const { return current_ == nullptr && forming_.empty(); }

 private:
  struct FormingMember {
    std::string nonce;
    std::string node;
    CallId call = 0;
  };
  struct Forming {
    uint32_t world_size = 0;
    std::string store;
    std::map<uint32_t, FormingMember> members;  // by rank
    std::map<CallId, bool> calls;
    std::set<uint32_t> gave_up;  // ranks that joined, and whose join has reached its deadline
    uint64_t held_epoch = 0;     // the newest that a joining node knows of
  };

  absl::Status CheckSameNode(const v1::JoinWorldRequest& request) const;
  absl::Status CheckNotSuperseded(const v1::JoinWorldRequest& request) const;
  static absl::Status CheckAgainst(const Forming& forming, const v1::JoinWorldRequest& request);
  static std::vector<CallId> Displace(Forming& forming, const v1::JoinWorldRequest& request);
  void MakeCurrent(const std::string& token, Forming forming);

  uint64_t last_epoch_ = 0;
  std::shared_ptr<const World> current_;
  std::shared_ptr<const World> superseded_;  // the one before: its processes are refused
  std::map<std::string, Forming> forming_;   // by run token
};

// INVALID_ARGUMENT naming what is wrong with a join: names, sizes, ranks, nonces.
absl::Status CheckJoin(const v1::JoinWorldRequest& request);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_WORLD_H_
