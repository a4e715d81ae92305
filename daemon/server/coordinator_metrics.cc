#include "daemon/server/coordinator_metrics.h"

#include "daemon/runtime/quantity.h"

namespace ckptd {
namespace {

constexpr size_t kMostJobs = 200;

}  // namespace

CoordinatorMetrics::CoordinatorMetrics(prometheus::Registry& registry, Log& log)
    : log_(log),
      world_join_seconds_(AddSecondsHistogram(registry, "ckptd_world_join_seconds",
                                              "From the first rank's join to the epoch.")),
      save_plan_seconds_(AddSecondsHistogram(registry, "ckptd_plan_seconds",
                                             "Planning, from the last node's message to the plan.",
                                             {{"kind", "save"}})),
      load_plan_seconds_(AddSecondsHistogram(registry, "ckptd_plan_seconds",
                                             "Planning, from the last node's message to the plan.",
                                             {{"kind", "load"}})),
      stall_seconds_(AddSecondsHistogram(registry, "ckptd_world_save_stall_seconds",
                                         "How long a committed save blocked its slowest rank.")),
      snapshot_seconds_(AddSecondsHistogram(registry, "ckptd_world_snapshot_seconds",
                                            "Snapshot of a committed save on its slowest node.")),
      persist_seconds_(AddSecondsHistogram(registry, "ckptd_world_persist_seconds",
                                           "Persist of a committed save on its slowest node.")),
      commit_seconds_(AddSecondsHistogram(
          registry, "ckptd_commit_seconds",
          "From the last node's report of durable files to the catalog record.")),
      restore_seconds_(AddSecondsHistogram(registry, "ckptd_world_restore_seconds",
                                           "One node's part of a load, as it reported it.")),
      committed_(AddCounter(registry, "ckptd_saves_committed_total", "Committed checkpoints.")),
      committed_bytes_(AddCounter(registry, "ckptd_committed_bytes_total",
                                  "Bytes of the data files of committed checkpoints.")),
      restored_bytes_(AddCounter(registry, "ckptd_world_restore_bytes_total",
                                 "Bytes that nodes read from storage for loads.")),
      removed_(AddCounter(registry, "ckptd_checkpoints_removed_total", "Removed checkpoints.")),
      collected_files_(AddCounter(registry, "ckptd_collected_files_total",
                                  "Files of failed saves that were removed from storage.")),
      collected_bytes_(AddCounter(registry, "ckptd_collected_bytes_total",
                                  "Bytes of failed saves that were removed from storage.")),
      warnings_(AddCounter(registry, "ckptd_coordinator_warnings_total",
                           "Log lines that a person should read.")),
      save_failures_(registry, "ckptd_world_save_failures_total",
                     "Failed saves of whole worlds; ABORTED: abandoned by a newer world."),
      load_failures_(registry, "ckptd_world_load_failures_total", "Nodes' failed parts of loads."),
      last_success_(registry, kMostJobs) {}

void CoordinatorMetrics::WorldFormed(const std::string& job, uint32_t ranks, double seconds) {
  world_join_seconds_.Observe(seconds);
  log_.Info("world formed", {{"job", job}, {"ranks", ranks}, {"seconds", seconds}});
}

void CoordinatorMetrics::PlanFinished(double seconds) { save_plan_seconds_.Observe(seconds); }

void CoordinatorMetrics::SaveCommitted(const CommittedSave& save) {
  stall_seconds_.Observe(save.blocked_seconds);
  snapshot_seconds_.Observe(save.snapshot_seconds);
  persist_seconds_.Observe(save.persist_seconds);
  commit_seconds_.Observe(save.commit_seconds);
  committed_.Increment();
  committed_bytes_.Increment(static_cast<double>(save.bytes));
  log_.Info("checkpoint committed", {{"job", save.job},
                                     {"step", save.step},
                                     {"size", HumanByteSize(save.bytes)},
                                     {"stall_seconds", save.blocked_seconds},
                                     {"snapshot_seconds", save.snapshot_seconds},
                                     {"persist_seconds", save.persist_seconds},
                                     {"commit_seconds", save.commit_seconds}});
}

void CoordinatorMetrics::SaveFailed(const std::string& job, uint64_t step,
                                    const absl::Status& why) {
  save_failures_.Count(why);
  log_.Warning(
      "save failed",
      {{"job", job}, {"step", step}, {"code", CodeName(why.code())}, {"reason", why.message()}});
}

void CoordinatorMetrics::LoadPlanned(double seconds) { load_plan_seconds_.Observe(seconds); }

void CoordinatorMetrics::LoadFinished(const std::string& job, uint64_t step, uint64_t bytes_read,
                                      double seconds, const absl::Status& result) {
  restored_bytes_.Increment(static_cast<double>(bytes_read));
  if (result.ok()) {
    restore_seconds_.Observe(seconds);
    log_.Info(
        "checkpoint loaded by a node",
        {{"job", job}, {"step", step}, {"read", HumanByteSize(bytes_read)}, {"seconds", seconds}});
    return;
  }
  load_failures_.Count(result);
  log_.Warning("load failed on a node", {{"job", job},
                                         {"step", step},
                                         {"code", CodeName(result.code())},
                                         {"reason", result.message()}});
}

void CoordinatorMetrics::CheckpointRemoved(const std::string& job, uint64_t step) {
  removed_.Increment();
  log_.Info("checkpoint removed", {{"job", job}, {"step", step}});
}

void CoordinatorMetrics::FilesCollected(uint64_t files, uint64_t bytes) {
  if (files == 0) return;
  collected_files_.Increment(static_cast<double>(files));
  collected_bytes_.Increment(static_cast<double>(bytes));
  log_.Info("files of failed saves removed", {{"files", files}, {"size", HumanByteSize(bytes)}});
}

void CoordinatorMetrics::JobState(const std::string& job, uint64_t last_step,
                                  absl::Time last_success, uint64_t checkpoints) {
  if (checkpoints == 0) {
    last_success_.Remove(job);
  } else {
    last_success_.Set(job, last_step, last_success);
  }
}

void CoordinatorMetrics::Warning(const std::string& message) {
  warnings_.Increment();
  log_.Warning(message);
}

}  // namespace ckptd
