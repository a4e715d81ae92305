// A node with a real arena, real files and a coordinator of the test's own, and
// trainers that speak to it as real ones do, from this process.
#ifndef CKPTD_TESTS_NODE_NODE_FIXTURE_H_
#define CKPTD_TESTS_NODE_NODE_FIXTURE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "daemon/node/node.h"
#include "proto/rpc/unique_fd.h"
#include "tests/runtime/manual_alarms.h"
#include "tests/storage/file_system/fault_injecting_file_system.h"
#include "tests/temporary_folder.h"

namespace ckptd {

// An answer that a test waits for.
template <typename Response>
class Pending {
 public:
  Done<Response> done() {
    return [state = state_](absl::StatusOr<Response> result) {
      state->result = std::move(result);
      state->ready.Notify();
    };
  }
  bool ready() const { return state_->ready.HasBeenNotified(); }
  absl::StatusOr<Response>& Get() {
    state_->ready.WaitForNotification();
    return state_->result;
  }

 private:
  struct State {
    absl::Notification ready;
    absl::StatusOr<Response> result = absl::UnknownError("");
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Plans a world of one node: each box is written by the first rank that has it.
class FakeCoordinator : public CoordinatorClient {
 public:
  void JoinWorld(v1::JoinWorldRequest request, Done<v1::JoinWorldResponse> done) override;
  void PlanSave(v1::PlanSaveRequest request, Done<v1::PlanSaveResponse> done) override;
  void ReportStaged(v1::ReportStagedRequest, Done<v1::ReportStagedResponse> done) override;
  void CommitSave(v1::CommitSaveRequest request, Done<v1::CommitSaveResponse> done) override;
  void PlanLoad(v1::PlanLoadRequest request, Done<v1::PlanLoadResponse> done) override;
  void FinishLoad(v1::FinishLoadRequest, Done<v1::FinishLoadResponse> done) override;
  void ListCheckpoints(v1::AuthorizedListCheckpoints,
                       Done<v1::ListCheckpointsResponse> done) override;
  void ShowCheckpoint(v1::AuthorizedShowCheckpoint, Done<v1::ShowCheckpointResponse> done) override;
  void RemoveCheckpoints(v1::AuthorizedRemoveCheckpoints,
                         Done<v1::RemoveCheckpointsResponse> done) override;

  int plans() const;
  std::vector<v1::CommitSaveRequest> commits() const;
  // Of the worlds that join from here on.
  void SetEpoch(uint64_t epoch);
  // The last JoinWorld's newest_epoch.
  uint64_t newest_epoch() const;
  // ReportStaged is answered by FinishStaged only, which waits for it.
  void HoldStaged();
  void FinishStaged(const absl::Status& answer);
  // PlanLoad is never answered.
  void HoldPlans();
  // CommitSave is answered by FinishCommits only, which waits for it.
  void HoldCommits();
  void FinishCommits();

 private:
  mutable absl::Mutex mutex_;
  int plans_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::pair<std::string, uint32_t>, v1::Layout> layouts_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::CommitSaveRequest> commits_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t newest_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint32_t> owners_ ABSL_GUARDED_BY(mutex_);
  bool holds_staged_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Done<v1::ReportStagedResponse>> held_staged_ ABSL_GUARDED_BY(mutex_);
  bool holds_plans_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Done<v1::PlanLoadResponse>> held_plans_ ABSL_GUARDED_BY(mutex_);
  bool holds_commits_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Done<v1::CommitSaveResponse>> held_commits_ ABSL_GUARDED_BY(mutex_);
};

class CountingProbe : public NodeProbe {
 public:
  void SessionClosed() override;
  void ChecksumMismatch() override;
  void KeptImageChanged() override;
  void StallReported(double seconds) override;
  void CoordinatorCallRetried(absl::StatusCode code) override;
  double longest_stall() const;
  int retries() const;
  void ArenaUsed(uint64_t used_bytes, uint64_t kept_bytes, uint64_t total_bytes) override;
  void RestoreFinished(double seconds, uint64_t bytes_read, uint64_t bytes_from_arena) override;
  void Warning(absl::string_view text) override;
  // Of all loads.
  uint64_t bytes_from_storage() const;
  uint64_t bytes_from_arena() const;
  std::string warnings() const;
  void AwaitArenaUsed(uint64_t bytes);
  void AwaitArenaEmpty() { AwaitArenaUsed(0); }
  void AwaitClosed(int sessions);
  int mismatches() const;
  int changed_images() const;

 private:
  mutable absl::Mutex mutex_;
  int closed_ ABSL_GUARDED_BY(mutex_) = 0;
  int mismatches_ ABSL_GUARDED_BY(mutex_) = 0;
  int changed_images_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t arena_used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int retries_ ABSL_GUARDED_BY(mutex_) = 0;
  double longest_stall_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_from_storage_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t bytes_from_arena_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string warnings_ ABSL_GUARDED_BY(mutex_);
};

struct FixtureOptions {
  uint64_t arena_bytes = uint64_t{16} << 20;
  bool manual_time = false;  // time passes only when the test calls `time.Advance`
  size_t session_limit_per_user = 1024;
  bool keep_images = false;  // what is loaded comes from storage
};

class NodeFixture {
 public:
  explicit NodeFixture(const FixtureOptions& options = {});

  std::string HandlePath() const;
  std::string StorePath() const;

  TemporaryFolder folder;
  std::unique_ptr<FileSystem> posix;
  FaultInjectingFileSystem files;
  ManualClock clock;
  ManualAlarms time;
  ThreadAlarms alarms;
  FakeCoordinator coordinator;
  CountingProbe probe;
  std::unique_ptr<Node> node;
};

struct TestTensor {
  std::string name;
  std::string bytes;  // U8, one-dimensional
};

// Unmapped at its end.
struct MappedSlab {
  UniqueFd descriptor;
  char* data = nullptr;
  uint64_t size_bytes = 0;

  MappedSlab(UniqueFd given, uint64_t bytes);
  MappedSlab(const MappedSlab&) = delete;
  ~MappedSlab();
};

// One rank.
class TestTrainer {
 public:
  TestTrainer(NodeFixture& fixture, uint32_t rank);
  // As a process of that user; the test runs as root.
  TestTrainer(NodeFixture& fixture, uint32_t rank, uint32_t user_id);

  Pending<v1::JoinResponse> Join(const std::string& job, uint32_t world_size, bool reader = false);
  void SetState(std::vector<TestTensor> tensors, std::vector<TestTensor> values);
  Pending<v1::BeginSaveResponse> BeginSave(uint64_t step, uint64_t save_number);
  // Copies into the leases, as the plan says.
  void Copy(const v1::BeginSaveResponse& plan);
  absl::Status Finish(uint64_t save_number, const std::string& error = "");
  absl::StatusOr<v1::SaveStatus> Wait(uint64_t save_number, v1::SavePhase until);
  // All of it, for the only rank of a world.
  absl::StatusOr<v1::SaveStatus> Save(uint64_t step, uint64_t save_number);
  // The bytes of a tensor of this size.
  absl::StatusOr<std::string> Load(const std::string& name, uint64_t bytes, uint64_t load_number);
  absl::Status GetSlab(uint64_t slab_id);

  // A load of `latest`, call by call.
  v1::BeginLoadRequest LoadRequest(uint64_t load_number,
                                   const std::vector<std::pair<std::string, uint64_t>>& tensors,
                                   const std::vector<std::string>& values = {}) const;
  Pending<v1::BeginLoadResponse> BeginLoad(const v1::BeginLoadRequest& request);
  Pending<v1::NextWindowsResponse> Next(uint64_t load_id,
                                        const std::vector<uint64_t>& released = {});
  absl::Status EndLoad(uint64_t load_id);
  // Takes and gives back windows until the end: tensors by index, then values by index.
  // `taken`: windows that the test has taken before, with Next.
  absl::StatusOr<std::pair<std::vector<std::string>, std::vector<std::string>>> Receive(
      const v1::BeginLoadRequest& request, const v1::BeginLoadResponse& begun,
      const v1::NextWindowsResponse& taken = {});

  // As `ckptctl pause` and `resume`.
  void SetPaused(bool paused);

  const SessionPtr& session() const { return session_; }
  void SetEpoch(uint64_t epoch) { epoch_ = epoch; }
  char* Map(uint64_t slab_id);
  // Of one that was mapped.
  const MappedSlab& Slab(uint64_t slab_id) const { return *slabs_.at(slab_id); }
  void Disconnect() { socket_.reset(); }

  // What its joins say: else each rank joins by itself.
  bool local_world_size_is_known = true;
  double timeout_seconds = 60;  // of joins and saves

 private:
  void SayHello();
  void Write(const v1::Lease& lease, uint64_t offset, const std::string& bytes);

  NodeFixture& fixture_;
  const uint32_t rank_;
  UniqueFd socket_;
  SessionPtr session_;
  std::string job_;
  uint64_t epoch_ = 1;
  std::vector<TestTensor> tensors_;
  std::vector<TestTensor> values_;
  std::string layout_;
  std::map<uint64_t, std::unique_ptr<MappedSlab>> slabs_;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_NODE_NODE_FIXTURE_H_
