// The coordinator's state and its parts, split over files by conversation:
// worlds.cc (joining), settling.cc, saves.cc (the calls), save_rounds.cc, commits.cc,
// loads.cc (the calls), load_plans.cc, checkpoints.cc (list, show, remove, collect). For
// those files only.
//
// One lock guards everything. Under it decisions are made and answers are
// gathered (Deferred); they are given when it is released. What takes long runs on
// two executors and takes the lock again when done:
// - writer_, one thread: all that changes storage or catalog. So a commit, a removal
//   and a collection never overlap, and records are written in order.
// - planner_: save and load plans.
#ifndef CKPTD_DAEMON_COORDINATOR_COORDINATOR_IMPL_H_
#define CKPTD_DAEMON_COORDINATOR_COORDINATOR_IMPL_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/coordinator/catalog.h"
#include "daemon/coordinator/commit.h"
#include "daemon/coordinator/coordinator.h"
#include "daemon/coordinator/deferred.h"
#include "daemon/coordinator/job_state.h"
#include "daemon/coordinator/load_planner.h"
#include "daemon/coordinator/reconcile.h"
#include "daemon/coordinator/removal.h"
#include "daemon/runtime/executor.h"

namespace ckptd {

class Coordinator::Impl {
 public:
  Impl(CoordinatorOptions options, FileSystem& file_system, const Clock& clock, Alarms& alarms,
       CoordinatorProbe& probe, std::unique_ptr<Catalog> catalog);
  ~Impl() { Stop(); }

  // After the catalog was reconciled; before any call.
  void Start(Reconciled reconciled) ABSL_LOCKS_EXCLUDED(mutex_);

  void JoinWorld(const v1::JoinWorldRequest& request, Done<v1::JoinWorldResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void PlanSave(const v1::PlanSaveRequest& request, Done<v1::PlanSaveResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ReportStaged(const v1::ReportStagedRequest& request, Done<v1::ReportStagedResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void CommitSave(const v1::CommitSaveRequest& request, Done<v1::CommitSaveResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void PlanLoad(const v1::PlanLoadRequest& request, Done<v1::PlanLoadResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void FinishLoad(const v1::FinishLoadRequest& request, Done<v1::FinishLoadResponse> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ListCheckpoints(const v1::AuthorizedListCheckpoints& request,
                       Done<v1::ListCheckpointsResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void ShowCheckpoint(const v1::AuthorizedShowCheckpoint& request,
                      Done<v1::ShowCheckpointResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveCheckpoints(const v1::AuthorizedRemoveCheckpoints& request,
                         Done<v1::RemoveCheckpointsResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);

  void Drain() ABSL_LOCKS_EXCLUDED(mutex_);
  bool AwaitSavesFinished(absl::Duration limit) ABSL_LOCKS_EXCLUDED(mutex_);
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Alarms may fire while the coordinator is being destroyed: they go through this.
  struct Gate {
    absl::Mutex mutex;
    Impl* impl ABSL_GUARDED_BY(mutex) = nullptr;
  };

  // ---- common (coordinator.cc)
  absl::Status CheckServing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Job* FindJob(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // PERMISSION_DENIED unless the user owns the job, or is root.
  static absl::Status CheckOwner(const Job& job, uint32_t user_id);
  absl::Time DeadlineIn(double timeout_seconds) const;
  template <typename Method>
  AlarmId SetAlarm(absl::Time when, Method method);
  void CancelAlarm(AlarmId& alarm);
  void PublishJobState(const Job& job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string FolderOf(const v1::CheckpointRecord& record) const;

  // ---- worlds.cc
  absl::StatusOr<std::string> ResolveStore(const std::string& name) const;
  void JoinReader(const v1::JoinWorldRequest& request, Done<v1::JoinWorldResponse> done,
                  Deferred& deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinFailed(Job& job, WorldTable::CallId call, absl::Status status, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinTimedOut(const std::string& job, WorldTable::CallId call) ABSL_LOCKS_EXCLUDED(mutex_);
  void ForgetUnusedJob(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WorldFormed(Job& job, const std::vector<WorldTable::CallId>& joined, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordWorld(Job& job, Deferred& deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WorldRecorded(const std::string& job, const absl::Status& status)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- settling.cc
  void NoteUnfinished(Job& job, const v1::JoinWorldRequest& join)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Goes on with settling as far as it can; safe to call whenever something changed.
  void TrySettle(Job& job, Deferred& deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool JudgeOlderRounds(Job& job, Deferred& deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GraceOver(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);
  void RecordSettled(const std::string& job, uint64_t epoch) ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- saves.cc: the calls; save_rounds.cc: a round's life; commits.cc: from StartCommit on
  struct SaveAddress {
    const std::string& job;
    const std::string& node;
    AttemptKey attempt;
    uint64_t step;
  };
  template <typename Request>
  static SaveAddress AddressOf(const Request& request) {
    return {request.job(), request.node(), KeyOf(request.attempt()), request.step()};
  }
  // What a call of a save is about.
  struct SaveCall {
    Job& job;
    RoundState* state;  // null: this very attempt is committed
  };
  // How each of these calls begins: checks its address, and starts the round if need be.
  absl::StatusOr<SaveCall> FindSave(const SaveAddress& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Job*> JobOfSave(const SaveAddress& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<RoundState*> FindOrStartRound(Job& job, const SaveAddress& address)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RoundState& StartRound(Job& job, AttemptKey attempt, uint64_t step)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMayPlan(const SaveCall& call, const SaveAddress& address, bool overwrite)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RefuseCall(Job& job, AttemptKey attempt, const absl::Status& status, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckNotCommitted(const Job& job, const SaveAddress& address, bool overwrite);
  // Fails the round when its nodes don't agree. Returns why.
  absl::Status FailUnlessAgreed(Job& job, RoundState& state, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ArmDeadline(RoundState& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RoundTimedOut(const std::string& job, AttemptKey attempt) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailRound(Job& job, AttemptKey attempt, absl::Status status, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EraseRound(Job& job, AttemptKey attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropIfUntouched(Job& job, AttemptKey attempt) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartPlanning(Job& job, RoundState& state, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlanIsMade(const std::string& job, AttemptKey attempt,
                  absl::StatusOr<std::shared_ptr<const PlannedSave>> plan)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void AnswerPlans(Job& job, RoundState& state, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartCommit(Job& job, RoundState& state, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  struct CommitWork;
  void RunCommit(std::shared_ptr<CommitWork> work) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ResolveDoubtOf(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<v1::CheckpointRecord> WriteCheckpoint(CommitWork& work)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Commit MakeCommit(const CommitWork& work) ABSL_LOCKS_EXCLUDED(mutex_);
  void CommitFinished(const CommitWork& work, absl::StatusOr<v1::CheckpointRecord> record)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- loads.cc: the calls; load_plans.cc: what runs on the planner
  absl::StatusOr<LoadState*> FindOrStartLoad(Job& job, const v1::PlanLoadRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TryPlanLoads(Job& job, Deferred& deferred) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<uint64_t> ChooseStep(const Job& job, const v1::CheckpointSelector& selector) const;
  void RunLoadPlan(const std::string& job, LoadKey key, uint64_t step) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status CheckManifestOf(const v1::CheckpointRecord& record) ABSL_LOCKS_EXCLUDED(mutex_);
  void LoadIsPlanned(const std::string& job, LoadKey key,
                     const std::vector<v1::PlanLoadRequest>& requests,
                     absl::StatusOr<std::vector<v1::PlanLoadResponse>> responses)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void LoadTimedOut(const std::string& job, LoadKey key) ABSL_LOCKS_EXCLUDED(mutex_);
  void FailLoad(Job& job, LoadKey key, const absl::Status& status, Deferred& deferred)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string DescribeLoadWaiting(const Job& job, const LoadState& load) const;
  bool IsBeingLoaded(const Job& job, uint64_t step) const;

  // ---- checkpoints.cc
  v1::CheckpointSummary SummaryOf(const Job& job, const v1::CheckpointRecord& record) const;
  absl::StatusOr<std::vector<v1::CheckpointRecord>> ChooseForRemoval(
      const Job& job, const v1::RemoveCheckpointsRequest& request) const;
  void RunRemoval(const std::string& job, const std::vector<v1::CheckpointRecord>& records,
                  Done<v1::RemoveCheckpointsResponse> done) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status RemoveOne(const std::string& job, const v1::CheckpointRecord& record)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ScheduleCollection(absl::Duration in) ABSL_LOCKS_EXCLUDED(mutex_);
  void StartCollection() ABSL_LOCKS_EXCLUDED(mutex_);
  bool MayBeReported(const Job& job, AttemptKey attempt, absl::Time modified) const;
  void CollectJob(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);

  const CoordinatorOptions options_;
  FileSystem& file_system_;
  const Clock& clock_;
  Alarms& alarms_;
  CoordinatorProbe& probe_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::unique_ptr<Catalog> catalog_;
  // By job; only for the writer's thread.
  std::map<std::string, CommitDoubt> doubts_;

  absl::Mutex mutex_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  size_t saves_under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 1;

  // Last: their threads are joined before what they use goes.
  Executor writer_;
  Executor planner_;
};

template <typename Method>
AlarmId Coordinator::Impl::SetAlarm(absl::Time when, Method method) {
  return alarms_.At(when, [gate = gate_, method = std::move(method)] {
    absl::MutexLock lock(&gate->mutex);
    if (gate->impl != nullptr) method(*gate->impl);
  });
}

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_COORDINATOR_IMPL_H_
