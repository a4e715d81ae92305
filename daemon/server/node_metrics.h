// What the node tells about itself, as Prometheus metrics and log lines. This file
// is the list of the node's metrics.
#ifndef CKPTD_DAEMON_SERVER_NODE_METRICS_H_
#define CKPTD_DAEMON_SERVER_NODE_METRICS_H_

#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/node/probe.h"
#include "daemon/runtime/log.h"
#include "daemon/server/metric_families.h"

namespace ckptd {

// Thread-safe. Registry and log must outlive it; one per registry.
class NodeMetrics : public NodeProbe {
 public:
  NodeMetrics(prometheus::Registry& registry, Log& log);

  void SessionOpened() override;
  void SessionClosed() override;

  void SaveStarted() override;
  void PlanFinished(double seconds, bool from_cache) override;
  void StallReported(double seconds) override;
  void SnapshotFinished(double seconds, uint64_t bytes) override;
  void PersistFinished(double seconds, uint64_t bytes) override;
  void CommitFinished(double seconds) override;
  void SaveDurable(double seconds, uint64_t bytes, absl::Time when) override;
  void SaveFailed(absl::StatusCode code, v1::SavePhase during) override;

  void RestorePlanned(double seconds) override;
  void RestoreTransferred(double seconds) override;
  void RestoreFinished(double seconds, uint64_t bytes_read, uint64_t bytes_from_arena) override;
  void RestoreFailed(absl::StatusCode code) override;
  void ChecksumMismatch() override;
  void KeptImageChanged() override;

  void ArenaUsed(uint64_t used_bytes, uint64_t kept_bytes, uint64_t total_bytes) override;
  void ArenaWaiting(int requests) override;

  void PersistPaused(bool paused) override;
  void CoordinatorCallRetried(absl::StatusCode code) override;
  void FallbackInUse(absl::string_view what) override;
  void Warning(absl::string_view text) override;

 private:
  Log& log_;
  prometheus::Gauge& sessions_;
  prometheus::Counter& saves_started_;
  prometheus::Histogram& cached_plan_seconds_;
  prometheus::Histogram& fresh_plan_seconds_;
  prometheus::Histogram& stall_seconds_;
  prometheus::Histogram& snapshot_seconds_;
  prometheus::Histogram& persist_seconds_;
  prometheus::Histogram& commit_seconds_;
  prometheus::Histogram& durable_seconds_;
  prometheus::Histogram& restore_plan_seconds_;
  prometheus::Histogram& restore_transfer_seconds_;
  prometheus::Histogram& restore_seconds_;
  prometheus::Counter& snapshot_bytes_;
  prometheus::Counter& persist_bytes_;
  prometheus::Counter& durable_bytes_;
  prometheus::Counter& restore_bytes_;
  prometheus::Counter& restore_arena_bytes_;
  prometheus::Counter& checksum_failures_;
  prometheus::Counter& kept_images_changed_;
  prometheus::Counter& warnings_;
  prometheus::Gauge& last_success_;
  prometheus::Gauge& arena_bytes_;
  prometheus::Gauge& arena_used_bytes_;
  prometheus::Gauge& arena_kept_bytes_;
  prometheus::Gauge& arena_waiting_;
  prometheus::Gauge& persist_paused_;
  prometheus::Family<prometheus::Gauge>& fallback_family_;
  FailureCounter save_failures_;
  FailureCounter restore_failures_;
  FailureCounter coordinator_retries_;

  absl::Mutex mutex_;
  std::map<std::string, prometheus::Gauge*, std::less<>> fallbacks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_NODE_METRICS_H_
