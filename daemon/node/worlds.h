// Which of this node's processes belong to which world.
//
// Joins of a node's ranks are merged into one JoinWorld where the trainers say how
// many they are. Once a newer epoch of a job is known here, older ones are refused.
#ifndef CKPTD_DAEMON_NODE_WORLDS_H_
#define CKPTD_DAEMON_NODE_WORLDS_H_

#include <cstdint>
#include <functional>
#include <list>
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
    AlarmId alarm = 0;
    bool alive = true;
  };
  // One JoinWorld and the ranks that it names.
  struct Call {
    std::vector<Joiner> joiners;
    bool answered = false;
    absl::StatusOr<v1::JoinWorldResponse> answer = absl::UnknownError("");
  };
  // job, store, world size, run token, user, group, reader's session.
  using GroupKey =
      std::tuple<std::string, std::string, uint32_t, std::string, uint32_t, uint32_t, SessionId>;
  struct Group {
    std::vector<Joiner> collecting;
    std::list<std::shared_ptr<Call>> calls;
  };
  struct World {
    std::string store;
    uint32_t world_size = 0;
    FileOwner owner;
    std::map<uint32_t, WorldMember> members;
  };
  struct Job {
    // By epoch and, for readers (epoch 0), session.
    std::map<std::pair<uint64_t, SessionId>, World> worlds;
    uint64_t newest_epoch = 0;
    std::set<uint64_t> committed_steps;
  };

  absl::Status Check(const v1::JoinRequest& request) const;
  // UNAVAILABLE, UNAUTHENTICATED, RESOURCE_EXHAUSTED or FAILED_PRECONDITION.
  absl::Status MayJoin(const Session& session, const v1::JoinRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndJoiners(Group& group, SessionId session, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndMembers(SessionId session) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Collect(const GroupKey& key, Joiner joiner, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Send(const GroupKey& key, Group& group, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(const GroupKey& key, SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);
  void Answered(const GroupKey& key, const std::shared_ptr<Call>& call,
                absl::StatusOr<v1::JoinWorldResponse> answer) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers all calls that have their answer. Only when all have: ranks that came in
  // calls of their own must find each other in the world. `force`: without waiting.
  void Flush(const GroupKey& key, bool force, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Register(const Joiner& joiner, const v1::JoinWorldResponse& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static std::string DescribeWaiting(const Group& group);

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
