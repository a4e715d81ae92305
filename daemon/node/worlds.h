// Which of this node's processes belong to which world.
//
// Joins of a node's ranks are merged into one JoinWorld where the trainers say how
// many they are. However they come, nobody is answered before all of this node's ranks
// of the epoch are here: also after a restart of the daemon under living trainers.
// Once a newer epoch of a job is known here, older ones are refused.
#ifndef CKPTD_DAEMON_NODE_WORLDS_H_
#define CKPTD_DAEMON_NODE_WORLDS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/call_scope.h"
#include "daemon/node/coordinator_client.h"
#include "daemon/node/node_options.h"
#include "daemon/node/session.h"
#include "daemon/node/sessions.h"
#include "daemon/runtime/done.h"

namespace ckptd {

struct WorldMember {
  uint32_t rank = 0;
  SessionId session = 0;
  uint32_t process_id = 0;
  bool alive = true;
};

// A world as one of its local ranks sees it. A value.
struct WorldView {
  std::string job;
  std::string store;
  uint64_t epoch = 0;  // 0: a reader's
  uint32_t world_size = 0;
  FileOwner owner;
  std::vector<WorldMember> members;  // of this node, by rank
  uint32_t rank = 0;                 // the caller's
};

// FAILED_PRECONDITION, naming it, when a rank of this node has ended: nothing may begin
// that would wait for it.
[[nodiscard]] absl::Status CheckWhole(const WorldView& world);

// Thread-safe.
class Worlds {
 public:
  // Attempts of a job that this node still holds, for JoinWorld.
  using UnfinishedAttempts =
      std::function<std::vector<v1::UnfinishedAttempt>(const std::string& job)>;

  Worlds(const NodeOptions& options, const Clock& clock, Alarms& alarms,
         CoordinatorClient& coordinator, CallScope& scope, const Sessions& sessions,
         UnfinishedAttempts unfinished);

  // DEADLINE_EXCEEDED names the ranks that were waited for; FAILED_PRECONDITION a rank
  // that has ended, or both epochs where a newer one of the job has begun meanwhile.
  void Join(SessionPtr session, v1::JoinRequest request, Done<v1::JoinResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void SessionEnded(const Session& session) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whoever comes is answered UNAVAILABLE from now on.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  // And whoever waits.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  // FAILED_PRECONDITION when the session has not joined this epoch, or a newer one
  // of the job is known here (both are named).
  absl::StatusOr<WorldView> Find(const Session& session, const std::string& job,
                                 uint64_t epoch) const ABSL_LOCKS_EXCLUDED(mutex_);
  bool HasJoined(SessionId session, const std::string& job) const ABSL_LOCKS_EXCLUDED(mutex_);

  // What this node knows of the job's committed steps. A hint: others may have
  // removed one since.
  bool IsCommitted(const std::string& job, uint64_t step) const ABSL_LOCKS_EXCLUDED(mutex_);
  void SetCommitted(const std::string& job, uint64_t step, bool committed)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Fills in job, rank and epoch.
  void Describe(SessionId session, v1::SessionStatus& status) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Joiner {
    SessionPtr session;
    v1::JoinRequest request;
    Done<v1::JoinResponse> done;
    absl::Time deadline;
    AlarmId alarm = 0;  // while this node lets it wait; the coordinator has its own
    bool alive = true;
  };
  // The ranks that one JoinWorld names.
  using Call = std::vector<Joiner>;
  // job, store, world size, run token, user, group, reader's session.
  using GroupKey =
      std::tuple<std::string, std::string, uint32_t, std::string, uint32_t, uint32_t, SessionId>;
  struct Group {
    std::vector<Joiner> collecting;
    std::set<std::shared_ptr<Call>> calls;  // at the coordinator
  };
  struct World {
    std::string store;
    uint32_t world_size = 0;
    FileOwner owner;
    // This node's ranks, as the coordinator says; none of a reader's.
    std::vector<uint32_t> expected;
    std::map<uint32_t, WorldMember> members;
    std::vector<Joiner> held;  // members whose answer waits for the other expected ones
  };
  // Epoch and, for readers (epoch 0), session.
  using WorldKey = std::pair<uint64_t, SessionId>;
  struct Job {
    std::map<WorldKey, World> worlds;
    uint64_t newest_epoch = 0;
    std::set<uint64_t> committed_steps;
  };

  absl::Status Check(const v1::JoinRequest& request) const;
  // UNAVAILABLE, UNAUTHENTICATED, RESOURCE_EXHAUSTED or FAILED_PRECONDITION.
  absl::Status MayJoin(const Session& session, const v1::JoinRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndJoiners(Group& group, SessionId session, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Collect(const GroupKey& key, Joiner joiner, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const GroupKey& key, Group& group, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CollectingExpired(const GroupKey& key, SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answered(const GroupKey& key, const std::shared_ptr<Call>& call,
                absl::StatusOr<v1::JoinWorldResponse> answer) ABSL_LOCKS_EXCLUDED(mutex_);
  void EraseIfEmpty(const GroupKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::string DescribeWaiting(const Group& group);

  // ---- world_members.cc
  // Makes them members, and answers them when all that are expected are.
  void Admit(Call& call, const v1::JoinWorldResponse& answer, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Supersede(const std::string& name, uint64_t epoch, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Hold(World& world, WorldKey key, Joiner joiner, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerHeldIfDecided(const std::string& job, uint64_t epoch, World& world, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerHeld(World& world, const absl::StatusOr<v1::JoinResponse>& answer, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HeldExpired(const std::string& job, WorldKey key, SessionId session)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void EndMembers(SessionId session, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False when that session was not held.
  bool EndHeld(World& world, SessionId session, const absl::Status& status, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeOptions& options_;
  const Clock& clock_;
  Alarms& alarms_;
  CoordinatorClient& coordinator_;
  CallScope& scope_;
  const Sessions& sessions_;
  const UnfinishedAttempts unfinished_;

  mutable absl::Mutex mutex_;
  std::map<GroupKey, Group> groups_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_WORLDS_H_
