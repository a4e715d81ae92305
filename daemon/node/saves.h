// The saves of this node: takes the trainers' calls, drives each attempt through its
// phases, and answers those who wait.
#ifndef CKPTD_DAEMON_NODE_SAVES_H_
#define CKPTD_DAEMON_NODE_SAVES_H_

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/coordinator.pb.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/call_scope.h"
#include "daemon/node/kept_images.h"
#include "daemon/node/node_options.h"
#include "daemon/node/persist.h"
#include "daemon/node/save_attempt.h"
#include "daemon/node/save_memory.h"
#include "daemon/node/session.h"
#include "daemon/node/worlds.h"

namespace ckptd {

// Thread-safe. Everything given must outlive it; the arena and the persister must be stopped
// and `scope` closed before it is destroyed.
//
// What a failed attempt leaves: its files are removed (unless the coordinator may have
// committed it: then they are left to its collection), its memory is free as soon as no
// trainer writes there any more (kReclaimAfter at the latest), its error can be asked for with
// WaitSave while a rank that took part lives.
class Saves {
 public:
  Saves(const NodeOptions& options, NodeEnvironment environment, Alarms& alarms, CallScope& scope,
        Worlds& worlds, Arena& arena, Persister& persister, KeptImages& kept);

  void BeginSave(const SessionPtr& session, v1::BeginSaveRequest request,
                 Done<v1::BeginSaveResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void ExtendSnapshot(const SessionPtr& session, const v1::ExtendSnapshotRequest& request,
                      Done<v1::ExtendSnapshotResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of a failed attempt, too: it frees the rank's memory, and answers the error.
  void FinishSnapshot(const SessionPtr& session, const v1::FinishSnapshotRequest& request,
                      Done<v1::FinishSnapshotResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaitSave(const SessionPtr& session, const v1::WaitSaveRequest& request,
                Done<v1::SaveStatus> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void SessionEnded(const Session& session) ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<v1::UnfinishedAttempt> Unfinished(const std::string& job) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::SaveInFlight> InFlight() const ABSL_LOCKS_EXCLUDED(mutex_);

  // New attempts are refused with UNAVAILABLE from now on; waits for those in flight.
  [[nodiscard]] absl::Status Drain(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);
  // Fails what is in flight. The arena and the persister must still run.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Who says that an attempt has failed: what the coordinator says, it knows.
  enum class ToldBy { kUs, kCoordinator };

  // ---- BeginSave, step by step ----
  // The layout of the request, kept; null when the client must send it.
  absl::StatusOr<CheckedLayoutPtr> FindLayout(const Session& session, const WorldView& world,
                                              v1::BeginSaveRequest& request)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A step that may be committed already: asks the coordinator, then begins or refuses.
  void AskIfCommitted(const SessionPtr& session, const CheckedLayoutPtr& layout,
                      v1::BeginSaveRequest request, Done<v1::BeginSaveResponse> done);
  void Begin(const SessionPtr& session, const CheckedLayoutPtr& layout,
             v1::BeginSaveRequest request, Done<v1::BeginSaveResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Of an attempt in flight.
  absl::StatusOr<SaveAttemptPtr> FindOrCreate(const WorldView& world,
                                              const v1::BeginSaveRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ShortenDeadline(const SaveAttemptPtr& attempt, double timeout_seconds)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNewAttempt(const WorldView& world, const v1::BeginSaveRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AddRank(SaveAttempt& attempt, const Session& session, const WorldView& world,
                       const CheckedLayoutPtr& layout, v1::BeginSaveRequest& request,
                       Done<v1::BeginSaveResponse>& done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // ---- the way of an attempt ----
  // Does whatever the attempt's state now allows; called after each change.
  void Advance(const SaveAttemptPtr& attempt, Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdvancePlan(const SaveAttemptPtr& attempt, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AdvanceLeases(const SaveAttemptPtr& attempt, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaseTensors(const SaveAttemptPtr& attempt, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaseSmall(const SaveAttemptPtr& attempt, uint32_t rank, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins to create a file of the rank and to set its space aside, before what `later` is
  // given from here on. Not waited for: how long save() takes must not depend on storage.
  void OpenRankFile(const SaveAttemptPtr& attempt, uint32_t rank, bool is_small, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerReadyRanks(const SaveAttemptPtr& attempt, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Planned(const SaveAttemptPtr& attempt, absl::StatusOr<NodePlanPtr> plan, ToldBy told_by)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // ---- snapshot_extension.cc: images that go through the arena window by window ----
  absl::Status CheckExtension(const SaveAttempt& attempt, uint32_t rank,
                              const v1::ExtendSnapshotRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveWindow(const SaveAttemptPtr& attempt, uint32_t rank, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RequestWindow(const SaveAttemptPtr& attempt, uint32_t rank, absl::Time deadline,
                     Later& later) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WindowLeased(const SaveAttemptPtr& attempt, uint32_t rank,
                    absl::StatusOr<std::vector<ArenaLeasePtr>> leases) ABSL_LOCKS_EXCLUDED(mutex_);

  // The writer holds the memory from here on.
  static void GiveUp(ArenaLeasePtr& window, const std::shared_ptr<OpenFile>& file, Later& later);
  void PersistRank(const SaveAttemptPtr& attempt, uint32_t rank, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FilePersisted(const SaveAttemptPtr& attempt, uint32_t rank, bool is_small,
                     absl::StatusOr<PersistedFile> file) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes the files of an attempt that failed, and their copies in the arena.
  void RemoveFiles(const SaveAttempt& attempt, const std::vector<std::string>& paths);
  void ReportStaged(const SaveAttemptPtr& attempt, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Commit(const SaveAttemptPtr& attempt, bool with_layouts, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Committed(const SaveAttemptPtr& attempt, absl::StatusOr<v1::CommitSaveResponse> response)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- ends ----
  void Fail(const SaveAttemptPtr& attempt, const absl::Status& why, ToldBy told_by, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether no manifest can name this attempt's files.
  static bool FilesAreOurs(const SaveAttempt& attempt, const absl::Status& why, ToldBy told_by);
  void SetPhase(SaveAttempt& attempt, v1::SavePhase phase, Later& later)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Ended(const SaveAttemptPtr& attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes back what ranks of an ended attempt still hold after kReclaimAfter.
  void ReclaimLater(const SaveAttemptPtr& attempt);
  // Drops ended attempts of a job that nobody can ask about, and the oldest beyond
  // kRememberedAttempts. One whose memory a trainer may still write to is kept.
  void ForgetEnded(const std::string& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DeadlinePassed(const SaveAttemptPtr& attempt) ABSL_LOCKS_EXCLUDED(mutex_);
  void WaiterExpired(const SaveAttemptPtr& attempt, uint64_t id) ABSL_LOCKS_EXCLUDED(mutex_);
  // The attempt and the caller's part in it.
  absl::StatusOr<SaveAttemptPtr> FindFor(const Session& session, const std::string& job,
                                         const v1::Attempt& attempt) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double SecondsLeft(const SaveAttempt& attempt) const;

  const NodeOptions& options_;
  const NodeEnvironment environment_;
  Alarms& alarms_;
  CallScope& scope_;
  Worlds& worlds_;
  Arena& arena_;
  Persister& persister_;
  KeptImages& kept_;

  mutable absl::Mutex mutex_;
  SaveMemory memory_ ABSL_GUARDED_BY(mutex_);
  std::map<AttemptKey, SaveAttemptPtr> attempts_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::deque<AttemptKey>> ended_
      ABSL_GUARDED_BY(mutex_);  // by job, oldest first
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_waiter_ ABSL_GUARDED_BY(mutex_) = 1;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SAVES_H_
