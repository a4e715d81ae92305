// The loads of this node: merges its ranks' wishes, reads each wanted chunk once,
// hands verified windows to whoever wants them.
#ifndef CKPTD_DAEMON_NODE_LOADS_H_
#define CKPTD_DAEMON_NODE_LOADS_H_

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/call_scope.h"
#include "daemon/node/node_options.h"
#include "daemon/node/read_plan.h"
#include "daemon/node/reader.h"
#include "daemon/node/session.h"
#include "daemon/node/worlds.h"
#include "daemon/runtime/executor.h"

namespace ckptd {

// Thread-safe. Everything given must outlive it; Stop it, stop the arena and close `scope`
// before it is destroyed.
//
// A window's memory is used again only when every rank that was given it has given it back,
// ended its load or died: a failed load never changes bytes under a rank that copies them. A
// rank that says nothing for kReclaimAfter after the failure loses the load; its windows'
// memory is taken out of use before others get it, and its EndLoad answers NOT_FOUND.
class Loads {
 public:
  Loads(const NodeOptions& options, NodeEnvironment environment, Alarms& alarms, CallScope& scope,
        Worlds& worlds, Arena& arena);

  void BeginLoad(const SessionPtr& session, v1::BeginLoadRequest request,
                 Done<v1::BeginLoadResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void NextWindows(const SessionPtr& session, const v1::NextWindowsRequest& request,
                   Done<v1::NextWindowsResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void EndLoad(const SessionPtr& session, const v1::EndLoadRequest& request,
               Done<v1::EndLoadResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void SessionEnded(const Session& session) ABSL_LOCKS_EXCLUDED(mutex_);
  // New loads are refused with UNAVAILABLE from now on.
  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  // Fails what is under way and waits for reads. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct ActiveRead {
    size_t slot = 0;
    size_t holders = 0;  // (rank, window) pairs not given back
  };
  using ActiveReadPtr = std::shared_ptr<ActiveRead>;
  struct RankLoad {
    SessionId session = 0;
    uint32_t process_id = 0;
    uint64_t load_id = 0;
    bool begun = false;
    bool ended = false;
    CheckedLayoutPtr layout;
    v1::Layout wish;
    Done<v1::BeginLoadResponse> begin_done;
    uint64_t bytes = 0;
    std::deque<std::pair<v1::Window, ActiveReadPtr>> ready;
    std::map<uint64_t, ActiveReadPtr> held;  // by window id
    Done<v1::NextWindowsResponse> next_done;
    AlarmId next_alarm = 0;
  };
  // job, epoch, load number, reader's session.
  using LoadKey = std::tuple<std::string, uint64_t, uint64_t, SessionId>;
  struct Load {
    LoadKey key;
    WorldView world;
    v1::CheckpointSelector selector;
    v1::LoadOptions options;
    absl::Time started;
    absl::Time deadline = absl::InfiniteFuture();
    AlarmId alarm = 0;
    absl::Status error;
    std::map<uint32_t, RankLoad> ranks;
    bool plan_requested = false;
    std::shared_ptr<const v1::PlanLoadResponse> plan;
    std::shared_ptr<LoadReader> reader;
    ArenaTicketPtr ticket;
    std::vector<ArenaLeasePtr> slots;
    std::set<size_t> free_slots;
    std::vector<PlannedRead> reads;
    size_t next_header = 0;
    size_t next_read = 0;
    size_t in_flight = 0;
    uint64_t bytes_read = 0;
    bool reported = false;

    bool all_read() const {
      return plan != nullptr && next_header == static_cast<size_t>(plan->files_size()) &&
             next_read == reads.size() && in_flight == 0;
    }
  };
  using LoadPtr = std::shared_ptr<Load>;

  absl::StatusOr<LoadPtr> FindOrCreate(const WorldView& world, const Session& session,
                                       const v1::BeginLoadRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShortenDeadline(const LoadPtr& load, double timeout_seconds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddRank(Load& load, const WorldView& world, const Session& session,
                       CheckedLayoutPtr layout, v1::BeginLoadRequest& request,
                       Done<v1::BeginLoadResponse>& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RequestPlan(const LoadPtr& load, const Session& session, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Planned(const LoadPtr& load, absl::StatusOr<v1::PlanLoadResponse> response)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // That the plan's store and files are such as this node may read.
  absl::Status CheckPlaces(const v1::PlanLoadResponse& plan) const;
  // What each rank will be given.
  static void CountBytes(Load& load);
  void RequestSlots(const LoadPtr& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerBegins(Load& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts reads as long as slots are free.
  void Pump(const LoadPtr& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HeaderVerified(const LoadPtr& load, size_t slot, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadFinished(const LoadPtr& load, size_t slot, size_t read, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Deliver(const LoadPtr& load, size_t slot, const PlannedRead& read)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveBack(Load& load, const ActiveReadPtr& read) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Answers a parked NextWindows if there is something to say.
  void AnswerNext(Load& load, RankLoad& rank, bool timed_out, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerAllNext(Load& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndRank(const LoadPtr& load, RankLoad& rank, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const LoadPtr& load, const absl::Status& why, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DeadlinePassed(const LoadPtr& load) ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends, after kReclaimAfter, the ranks that have not ended a failed load.
  void ReclaimLater(const LoadPtr& load);
  void Reclaim(const LoadPtr& load) ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetIfOver(const LoadPtr& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Report(Load& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Describe(const Load& load) const;
  static std::string DescribeWait(const Load& load);
  absl::StatusOr<std::pair<LoadPtr, RankLoad*>> FindFor(const Session& session, uint64_t load_id)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const NodeOptions& options_;
  const NodeEnvironment environment_;
  Alarms& alarms_;
  CallScope& scope_;
  Worlds& worlds_;
  Arena& arena_;

  absl::Mutex mutex_;
  std::map<LoadKey, LoadPtr> loads_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::pair<LoadPtr, uint32_t>> by_id_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_load_id_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t next_window_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  Executor executor_;  // last: its threads use the rest
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_LOADS_H_
