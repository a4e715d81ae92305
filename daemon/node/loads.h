// The loads of this node: merges its ranks' wishes, reads each wanted chunk once,
// hands verified windows to whoever wants them. What still lies in the arena from the save
// is handed over where it lies.
#ifndef CKPTD_DAEMON_NODE_LOADS_H_
#define CKPTD_DAEMON_NODE_LOADS_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/call_scope.h"
#include "daemon/node/kept_images.h"
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
        Worlds& worlds, Arena& arena, KeptImages& kept);

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
    size_t read = 0;
    std::optional<size_t> slot;  // none: its bytes lie in the image
    ArenaLeasePtr image;         // of the whole file; null with a slot
    size_t holders = 0;          // (rank, window) pairs not given back
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
    absl::Time planned;  // once there is a plan
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
    // Of the plan's files: its image was in the arena whenever one looked. Only reads under
    // way hold images, so that a save which waits for the memory gets it soon.
    std::vector<bool> is_kept;
    // Not begun: indices into the plan's files and reads.
    std::deque<uint32_t> headers;
    std::deque<size_t> storage_reads;
    std::deque<size_t> arena_reads;
    int arena_reads_active = 0;
    size_t in_flight = 0;
    uint64_t bytes_from_arena = 0;
    bool reported = false;

    bool all_read() const {
      return plan != nullptr && headers.empty() && storage_reads.empty() && arena_reads.empty() &&
             in_flight == 0;
    }
    KeptName kept_name(uint32_t file) const {
      return {plan->store(), world.job, plan->files(static_cast<int>(file)).path()};
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
  // Memory for reads from storage, once per load.
  void RequestSlots(const LoadPtr& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerBegins(Load& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- load_reads.cc
  // Decides which files are read from storage, and which lie in the arena.
  void QueueReads(Load& load) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts reads as long as there is room for more windows; asks for that room.
  void Pump(const LoadPtr& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Or sends the file to storage, where its image was given up meanwhile.
  absl::Status StartArenaRead(const LoadPtr& load) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status StartStorageRead(const LoadPtr& load) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What follows whenever a read is back.
  void ReadIsBack(const LoadPtr& load, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArenaReadFinished(const LoadPtr& load, size_t read, const ArenaLeasePtr& image, bool intact)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The kept image of this file is not what was saved.
  void ImageChanged(Load& load, uint32_t file) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What is left of this file is read from storage.
  static void GoToStorage(Load& load, uint32_t file);
  void HeaderVerified(const LoadPtr& load, size_t slot, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ReadFinished(const LoadPtr& load, size_t slot, size_t read, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Deliver(Load& load, const ActiveReadPtr& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One window, to every rank that wants some of the part.
  void HandOver(Load& load, const ActiveReadPtr& active, const ReadPart& part,
                const v1::Window& window) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Where the part lies: in a slot or, in one or more pieces, in the kept image.
  static std::vector<ArenaPart> MemoryOf(const Load& load, const ActiveRead& active,
                                         const ReadPart& part);
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
  KeptImages& kept_;

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
