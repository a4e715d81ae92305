// A coordinator on a real catalog and store, with its clock in the test's hands, and
// nodes that speak to it as real ones do.
#ifndef CKPTD_TESTS_COORDINATOR_FAKE_CLUSTER_H_
#define CKPTD_TESTS_COORDINATOR_FAKE_CLUSTER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "daemon/coordinator/coordinator.h"
#include "daemon/coordinator/fingerprint.h"
#include "tests/coordinator/layouts.h"
#include "tests/runtime/manual_alarms.h"
#include "tests/storage/file_system/fault_injecting_file_system.h"
#include "tests/temporary_folder.h"

namespace ckptd {

// The answer to one call, which may come later.
template <typename Response>
class Answer {
 public:
  Done<Response> done() {
    return [state = state_](absl::StatusOr<Response> result) {
      state->result = std::move(result);
      state->answered.Notify();
    };
  }
  bool answered() const { return state_->answered.HasBeenNotified(); }
  // Waits; UNKNOWN when no answer came within a minute.
  absl::StatusOr<Response> Wait() {
    if (!state_->answered.WaitForNotificationWithTimeout(absl::Minutes(1))) {
      return absl::UnknownError("no answer");
    }
    return state_->result;
  }
  absl::Status status() { return Wait().status(); }

 private:
  struct State {
    absl::Notification answered;
    absl::StatusOr<Response> result = absl::UnknownError("not answered");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class WarningProbe : public CoordinatorProbe {
 public:
  void Warning(const std::string& message) override {
    absl::MutexLock lock(&mutex_);
    text_ += message + "\n";
  }
  std::string text() const {
    absl::MutexLock lock(&mutex_);
    return text_;
  }

 private:
  mutable absl::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

class FakeCluster {
 public:
  FakeCluster();
  ~FakeCluster();

  Coordinator& coordinator() { return *coordinator_; }
  // As if its process had been killed and started again.
  void RestartCoordinator();
  // The same, but the machine lost power: what was not durable may be gone.
  void LosePower(uint64_t seed);
  // The same, but without its catalog.
  void LoseCatalog();
  absl::StatusOr<std::unique_ptr<Coordinator>> MakeCoordinator();
  std::string store() const { return folder_ / "store"; }
  std::string manifest(uint64_t step) const {
    return store() + "/gpt/step-" + std::to_string(step) + "/manifest.pb";
  }
  bool Exists(const std::string& path) const;

  std::vector<uint64_t> Steps();
  // Every listed checkpoint has its manifest, and every file that names, on the store.
  void CheckThatAllAreWhole();
  // Long after: collections have run and are done.
  void LetCollectionRun();
  v1::CheckpointSummary Summary(uint64_t step);
  Answer<v1::RemoveCheckpointsResponse> Remove(uint64_t step, uint32_t user_id = 1000);

  ManualClock clock;
  ManualAlarms alarms{clock};
  WarningProbe probe;
  std::unique_ptr<FileSystem> posix;
  std::unique_ptr<FaultInjectingFileSystem> files;

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Coordinator> coordinator_;
};

// One node with its ranks. Fields are what the next calls say.
class FakeNode {
 public:
  FakeNode(FakeCluster& cluster, std::string name, std::map<uint32_t, v1::Layout> layouts)
      : layouts(std::move(layouts)), cluster_(cluster), name_(std::move(name)) {}

  Answer<v1::JoinWorldResponse> Join(uint32_t world_size, const std::string& token = "run1");
  Answer<v1::PlanSaveResponse> Plan(uint64_t step);
  Answer<v1::ReportStagedResponse> Stage(uint64_t step);
  // Writes the planned pieces and values to files, and reports them.
  Answer<v1::CommitSaveResponse> Commit(uint64_t step);
  v1::CommitSaveRequest MakeReport(uint64_t step);
  Answer<v1::CommitSaveResponse> Send(const v1::CommitSaveRequest& report);
  Answer<v1::PlanLoadResponse> Load(std::optional<uint64_t> step,
                                    const v1::LoadOptions& options = {});
  void Finish();

  void UsePlan(const v1::PlanSaveResponse& plan) { plan_ = plan; }

  std::map<uint32_t, v1::Layout> layouts;            // by rank
  std::map<std::string, std::string> value_of_rank;  // "name/rank" -> content; else "same"
  std::vector<v1::UnfinishedAttempt> unfinished;
  uint64_t newest_epoch = 0;
  std::string nonce = "first";
  uint64_t epoch = 1;
  uint64_t save_number = 1;
  uint64_t load_number = 1;
  uint32_t user_id = 1000;
  bool overwrite = false;
  double timeout_seconds = 60;

 private:
  v1::Attempt attempt() const;

  FakeCluster& cluster_;
  const std::string name_;
  v1::PlanSaveResponse plan_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_COORDINATOR_FAKE_CLUSTER_H_
