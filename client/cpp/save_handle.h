// A save that was started: waiting for its phases, and how it ended.
#ifndef CKPTD_CLIENT_CPP_SAVE_HANDLE_H_
#define CKPTD_CLIENT_CPP_SAVE_HANDLE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "client/cpp/leased_image.h"
#include "client/cpp/node_link.h"

namespace ckptd {

// Thread-safe. Dropping it cancels nothing.
class SaveHandle {
 public:
  struct Name {
    std::string job;
    uint64_t step = 0;
    v1::Attempt attempt;
  };

  // `connection` is the session in which the save began.
  SaveHandle(std::shared_ptr<NodeLink> link, std::shared_ptr<NodeConnection> connection, Name name,
             absl::Time started);

  // Until all bytes are in the arena and the node knows it: from then on the
  // trainer's death loses nothing. The snapshot's error, or DEADLINE_EXCEEDED
  // after `timeout`.
  [[nodiscard]] absl::Status WaitSnapshot(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  // Until the step is committed. The save's error (also when the daemon was
  // restarted meanwhile and the step was lost), or DEADLINE_EXCEEDED.
  [[nodiscard]] absl::Status WaitDurable(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);

  // Where the save is now, without waiting. A failed save is a state, not an error.
  absl::StatusOr<v1::SaveStatus> Status() ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- for the copying side ----

  // Gives back the tensor image's bytes before `copied_bytes` and waits for the next ones.
  absl::StatusOr<LeasedImage> ExtendLease(uint64_t copied_bytes, absl::Duration timeout,
                                          OnInterrupt on_interrupt);
  // save() has returned to the training loop.
  void EndBlocking() ABSL_LOCKS_EXCLUDED(mutex_);
  // The copying has ended, well or not: tells the node, then whoever waits.
  void EndSnapshot(absl::Status copied) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  absl::Status TellNode(const absl::Status& copied) ABSL_LOCKS_EXCLUDED(mutex_);
  double BlockedSeconds() ABSL_LOCKS_EXCLUDED(mutex_);
  // The state as the node says it after waiting for `until` at most `timeout`.
  absl::StatusOr<v1::SaveStatus> Ask(v1::SavePhase until, absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // After `lost` said that the connection is gone: OK when asking again makes
  // sense, or the save's fate is known now. Looks for the daemon for `patience`.
  absl::Status FindDaemonAgain(const absl::Status& lost, absl::Duration patience)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Another daemon instance answers: was the step committed before?
  v1::SaveStatus FateAfterRestart(NodeConnection& connection);
  void Keep(const v1::SaveStatus& status) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Failure(const v1::SaveStatus& status) const;
  std::string Describe() const;

  const std::shared_ptr<NodeLink> link_;
  const std::shared_ptr<NodeConnection> connection_;
  const Name name_;
  const absl::Time started_;

  absl::Mutex mutex_;
  bool snapshot_ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status snapshot_status_ ABSL_GUARDED_BY(mutex_);
  // DURABLE or FAILED once known; UNSPECIFIED before.
  v1::SaveStatus final_status_ ABSL_GUARDED_BY(mutex_);
  absl::Duration blocked_ ABSL_GUARDED_BY(mutex_);
  absl::Time waiting_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_SAVE_HANDLE_H_
