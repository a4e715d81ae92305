// What the node daemon has to say about itself. The code reports events in its
// own words; whoever implements this turns them into metrics and log lines.
#ifndef CKPTD_DAEMON_NODE_PROBE_H_
#define CKPTD_DAEMON_NODE_PROBE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"

namespace ckptd {

// Thread-safe; every method returns at once and may be called under a lock. The
// defaults do nothing. Seconds and bytes are those of this node's part.
class NodeProbe {
 public:
  virtual ~NodeProbe() = default;

  virtual void SessionOpened() {}
  virtual void SessionClosed() {}

  // ---- saves ----
  virtual void SaveStarted() {}
  // From the first BeginSave until all ranks of the node could be answered.
  // `from_cache`: no round trip to the coordinator.
  virtual void PlanFinished(double /*seconds*/, bool /*from_cache*/) {}
  // How long save() blocked one rank's training loop, as it says itself.
  virtual void StallReported(double /*seconds*/) {}
  // All ranks of the node are wholly in the arena.
  virtual void SnapshotFinished(double /*seconds*/, uint64_t /*bytes*/) {}
  // All files of the node are durable (though not yet named by a manifest).
  virtual void PersistFinished(double /*seconds*/, uint64_t /*bytes*/) {}
  virtual void CommitFinished(double /*seconds*/) {}
  // The checkpoint exists; `seconds` from the first BeginSave, `when` is now.
  virtual void SaveDurable(double /*seconds*/, uint64_t /*bytes*/, absl::Time /*when*/) {}
  virtual void SaveFailed(absl::StatusCode /*code*/, v1::SavePhase /*during*/) {}

  // ---- loads ----
  // From the first BeginLoad until the node knew what to read.
  virtual void RestorePlanned(double /*seconds*/) {}
  // From there until every rank of the node had what it wanted.
  virtual void RestoreTransferred(double /*seconds*/) {}
  // Both. Bytes as read from storage, and those that were still in the arena.
  virtual void RestoreFinished(double /*seconds*/, uint64_t /*bytes_read*/,
                               uint64_t /*bytes_from_arena*/) {}
  virtual void RestoreFailed(absl::StatusCode /*code*/) {}
  virtual void ChecksumMismatch() {}
  // What lay in the arena was not what was saved; it is read from storage instead.
  virtual void KeptImageChanged() {}

  // ---- arena ----
  // `kept_bytes` hold what was saved, until the room is needed; they are not in use.
  virtual void ArenaUsed(uint64_t /*used_bytes*/, uint64_t /*kept_bytes*/,
                         uint64_t /*total_bytes*/) {}
  virtual void ArenaWaiting(int /*requests*/) {}

  virtual void PersistPaused(bool /*paused*/) {}
  virtual void CoordinatorCallRetried(absl::StatusCode /*code*/) {}
  // A degraded way is in use, named by a short word ("pidfd", "direct_io").
  virtual void FallbackInUse(absl::string_view /*what*/) {}
  // One line that a person should read.
  virtual void Warning(absl::string_view /*text*/) {}
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_PROBE_H_
