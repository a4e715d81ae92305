// A rank's client of its node daemon: the class behind the C ABI.
#ifndef CKPTD_CLIENT_CPP_CLIENT_H_
#define CKPTD_CLIENT_CPP_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "client/cpp/load_handle.h"
#include "client/cpp/node_link.h"
#include "client/cpp/save_handle.h"
#include "client/cpp/save_request.h"
#include "client/cpp/snapshot.h"
#include "client/cpp/worker_pool.h"

namespace ckptd {

// Thread-safe, but saves of one job are to be started in the same order in all its
// ranks. One background thread copies deferred tensors. In a forked child every
// call is refused with FAILED_PRECONDITION and the destructor does nothing.
class Client {
 public:
  // Opens the session. INVALID_ARGUMENT for options that make no sense,
  // UNAVAILABLE, saying how to start it, when there is no daemon.
  static absl::StatusOr<std::unique_ptr<Client>> Open(ClientOptions options);
  // As Close().
  ~Client();

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Starts a save: joins the job's world (the first time), gets leases, copies what
  // is not deferred, and returns; the rest is copied in the background. Where more
  // than kMostPrivateBytes of what is not deferred has no room in the arena yet, this waits
  // for storage. Every
  // call counts as one save of this rank, whether it succeeds or not, so that a
  // failure of one rank leaves the ranks' counts alike.
  absl::StatusOr<std::shared_ptr<SaveHandle>> Save(SaveRequest request) ABSL_LOCKS_EXCLUDED(mutex_);

  // Counts a save that this rank could not start, as a failed Save() does.
  void SkipSave(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Plans a load; LoadHandle::Run() then does it.
  absl::StatusOr<std::unique_ptr<LoadHandle>> Load(LoadRequest request) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<v1::ListCheckpointsResponse> ListCheckpoints(const std::string& job);
  absl::StatusOr<v1::ShowCheckpointResponse> ShowCheckpoint(const std::string& job,
                                                            const v1::CheckpointSelector& selector);
  absl::Status RemoveCheckpoint(const std::string& job, uint64_t step);

  // While on, the calls of other threads that wait (for ranks, a plan or bytes) return
  // CANCELLED soon, and what they had begun is given up. What was started goes on.
  void SetInterrupted(bool on) { link_->interrupt().Set(on); }

  // Finishes the snapshots that were started and ends the session. What is in the
  // arena becomes durable without us. A state larger than the arena is copied as storage
  // takes it: then this waits until the rest of it lies in the arena, or for the save's
  // deadline. No interrupt ends that wait. Later calls are refused. Idempotent.
  void Close();

 private:
  // The last plan of a job's saves. Valid for one layout and one daemon instance.
  struct KnownPlan {
    std::string instance_id;
    std::string fingerprint;
    std::string plan_id;
    std::shared_ptr<const std::vector<PlacedBox>> placements;
  };
  struct JobState {
    uint64_t saves = 0;
    uint64_t loads = 0;
    KnownPlan plan;
  };
  // A save that the node has admitted.
  struct Admitted {
    std::shared_ptr<NodeConnection> connection;
    v1::Attempt attempt;
    v1::BeginSaveResponse response;
    std::shared_ptr<const std::vector<PlacedBox>> placements;
  };

  explicit Client(ClientOptions options);

  absl::Status CheckOpen() const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Admitted> BeginSave(const SaveRequest& request, const SmallContents& small,
                                     uint64_t save_number) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status BeginSaveIn(const Membership& membership, const SaveRequest& request,
                           v1::BeginSaveRequest& message, Admitted& admitted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  static void GiveUp(const SaveRequest& request, const Admitted& admitted);
  absl::Status ResolvePlan(const SaveRequest& request, Admitted& admitted)
      ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<NodeLink> link_;
  WorkerPool copier_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, JobState> jobs_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_CLIENT_H_
