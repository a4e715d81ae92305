// What the coordinator tells about itself, as Prometheus metrics and log lines.
// This file is the list of the coordinator's metrics.
#ifndef CKPTD_DAEMON_SERVER_COORDINATOR_METRICS_H_
#define CKPTD_DAEMON_SERVER_COORDINATOR_METRICS_H_

#include "daemon/coordinator/probe.h"
#include "daemon/runtime/log.h"
#include "daemon/server/metric_families.h"

namespace ckptd {

// Thread-safe. Registry and log must outlive it; one per registry.
class CoordinatorMetrics : public CoordinatorProbe {
 public:
  CoordinatorMetrics(prometheus::Registry& registry, Log& log);

  void WorldFormed(const std::string& job, uint32_t ranks, double seconds) override;
  void PlanFinished(double seconds) override;
  void SaveCommitted(const CommittedSave& save) override;
  void SaveFailed(const std::string& job, uint64_t step, const absl::Status& why) override;
  void LoadPlanned(double seconds) override;
  void LoadFinished(const std::string& job, uint64_t step, uint64_t bytes_read, double seconds,
                    const absl::Status& result) override;
  void CheckpointRemoved(const std::string& job, uint64_t step) override;
  void FilesCollected(uint64_t files, uint64_t bytes) override;
  void JobState(const std::string& job, uint64_t last_step, absl::Time last_success,
                uint64_t checkpoints) override;
  void Warning(const std::string& message) override;

 private:
  Log& log_;
  prometheus::Histogram& world_join_seconds_;
  prometheus::Histogram& save_plan_seconds_;
  prometheus::Histogram& load_plan_seconds_;
  prometheus::Histogram& stall_seconds_;
  prometheus::Histogram& snapshot_seconds_;
  prometheus::Histogram& persist_seconds_;
  prometheus::Histogram& commit_seconds_;
  prometheus::Histogram& restore_seconds_;
  prometheus::Counter& committed_;
  prometheus::Counter& committed_bytes_;
  prometheus::Counter& restored_bytes_;
  prometheus::Counter& removed_;
  prometheus::Counter& collected_files_;
  prometheus::Counter& collected_bytes_;
  prometheus::Counter& warnings_;
  FailureCounter save_failures_;
  FailureCounter load_failures_;
  LastSuccessGauges last_success_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_COORDINATOR_METRICS_H_
