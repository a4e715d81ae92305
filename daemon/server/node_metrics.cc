#include "daemon/server/node_metrics.h"

namespace ckptd {
namespace {

constexpr char kPlanName[] = "ckptd_node_plan_seconds";
constexpr char kPlanHelp[] =
    "From the first rank's call until a save's plan was known; from the cache: no round trip.";

// Whoever reports another one adds it here: only these are exported as 0.
constexpr const char* kFallbacks[] = {"direct_io", "io_uring", "pidfd", "registered_memory"};

}  // namespace

NodeMetrics::NodeMetrics(prometheus::Registry& registry, Log& log)
    : log_(log),
      sessions_(AddGauge(registry, "ckptd_sessions", "Processes that are connected.")),
      saves_started_(AddCounter(registry, "ckptd_saves_started_total", "Saves begun.")),
      cached_plan_seconds_(
          AddSecondsHistogram(registry, kPlanName, kPlanHelp, {{"from_cache", "yes"}})),
      fresh_plan_seconds_(
          AddSecondsHistogram(registry, kPlanName, kPlanHelp, {{"from_cache", "no"}})),
      stall_seconds_(AddSecondsHistogram(registry, "ckptd_save_stall_seconds",
                                         "How long save() blocked one rank's training loop.")),
      snapshot_seconds_(
          AddSecondsHistogram(registry, "ckptd_snapshot_seconds",
                              "Snapshot: until all ranks of the node are wholly in the arena.")),
      persist_seconds_(AddSecondsHistogram(registry, "ckptd_persist_seconds",
                                           "Persist: until all files of the node are durable.")),
      commit_seconds_(
          AddSecondsHistogram(registry, "ckptd_node_commit_seconds",
                              "From this node's last durable file to the coordinator's answer.")),
      durable_seconds_(AddSecondsHistogram(registry, "ckptd_durable_seconds",
                                           "From a save's begin until its checkpoint exists.")),
      restore_plan_seconds_(
          AddSecondsHistogram(registry, "ckptd_node_restore_plan_seconds",
                              "From the first rank's call until a load's plan was known.")),
      restore_transfer_seconds_(AddSecondsHistogram(
          registry, "ckptd_restore_transfer_seconds",
          "From a load's plan until all ranks of the node had their bytes, read and verified.")),
      restore_seconds_(
          AddSecondsHistogram(registry, "ckptd_restore_seconds", "Loads, this node's part.")),
      snapshot_bytes_(
          AddCounter(registry, "ckptd_snapshot_bytes_total", "Bytes copied into the arena.")),
      persist_bytes_(
          AddCounter(registry, "ckptd_persist_bytes_total", "Bytes made durable on storage.")),
      durable_bytes_(AddCounter(registry, "ckptd_durable_bytes_total",
                                "This node's bytes of committed checkpoints.")),
      restore_bytes_(
          AddCounter(registry, "ckptd_restore_bytes_total", "Bytes read from storage for loads.")),
      restore_arena_bytes_(AddCounter(registry, "ckptd_restore_arena_bytes_total",
                                      "Bytes of loads that were still in the arena.")),
      checksum_failures_(AddCounter(registry, "ckptd_checksum_failures_total",
                                    "Chunks read from storage whose checksum was wrong.")),
      kept_images_changed_(
          AddCounter(registry, "ckptd_kept_images_changed_total",
                     "Saved files whose copy in the arena was found changed by a load.")),
      warnings_(AddCounter(registry, "ckptd_node_warnings_total",
                           "Log lines that a person should read.")),
      last_success_(AddGauge(registry, "ckptd_node_last_success_timestamp_seconds",
                             "When this node last had a part in a committed save, Unix time.")),
      arena_bytes_(AddGauge(registry, "ckptd_arena_bytes", "Size of the arena.")),
      arena_used_bytes_(AddGauge(registry, "ckptd_arena_used_bytes", "Arena bytes in use.")),
      arena_kept_bytes_(AddGauge(registry, "ckptd_arena_kept_bytes",
                                 "Arena bytes that hold what was saved, until they are needed.")),
      arena_waiting_(
          AddGauge(registry, "ckptd_arena_waiting_requests", "Requests that wait for arena.")),
      persist_paused_(AddGauge(registry, "ckptd_persist_paused", "1 while persist is paused.")),
      fallback_family_(prometheus::BuildGauge()
                           .Name("ckptd_fallback_in_use")
                           .Help("1 for each degraded way that is in use.")
                           .Register(registry)),
      save_failures_(registry, "ckptd_save_failures_total", "Failed saves, this node's part."),
      restore_failures_(registry, "ckptd_restore_failures_total",
                        "Failed loads, this node's part."),
      coordinator_retries_(registry, "ckptd_coordinator_retries_total",
                           "Calls to the coordinator that were sent again.") {
  absl::MutexLock lock(&mutex_);
  for (const char* what : kFallbacks) fallbacks_[what] = &fallback_family_.Add({{"what", what}});
}

void NodeMetrics::SessionOpened() { sessions_.Increment(); }
void NodeMetrics::SessionClosed() { sessions_.Decrement(); }

void NodeMetrics::SaveStarted() { saves_started_.Increment(); }

void NodeMetrics::PlanFinished(double seconds, bool from_cache) {
  (from_cache ? cached_plan_seconds_ : fresh_plan_seconds_).Observe(seconds);
}

void NodeMetrics::StallReported(double seconds) { stall_seconds_.Observe(seconds); }

void NodeMetrics::SnapshotFinished(double seconds, uint64_t bytes) {
  snapshot_seconds_.Observe(seconds);
  snapshot_bytes_.Increment(static_cast<double>(bytes));
}

void NodeMetrics::PersistFinished(double seconds, uint64_t bytes) {
  persist_seconds_.Observe(seconds);
  persist_bytes_.Increment(static_cast<double>(bytes));
}

void NodeMetrics::CommitFinished(double seconds) { commit_seconds_.Observe(seconds); }

void NodeMetrics::SaveDurable(double seconds, uint64_t bytes, absl::Time when) {
  durable_seconds_.Observe(seconds);
  durable_bytes_.Increment(static_cast<double>(bytes));
  last_success_.Set(absl::ToDoubleSeconds(when - absl::UnixEpoch()));
}

void NodeMetrics::SaveFailed(absl::StatusCode code, v1::SavePhase during) {
  save_failures_.Count(absl::Status(code, ""));
  log_.Warning("this node's part of a save failed",
               {{"code", CodeName(code)}, {"phase", v1::SavePhase_Name(during)}});
}

void NodeMetrics::RestorePlanned(double seconds) { restore_plan_seconds_.Observe(seconds); }

void NodeMetrics::RestoreTransferred(double seconds) { restore_transfer_seconds_.Observe(seconds); }

void NodeMetrics::RestoreFinished(double seconds, uint64_t bytes_read, uint64_t bytes_from_arena) {
  restore_seconds_.Observe(seconds);
  restore_bytes_.Increment(static_cast<double>(bytes_read));
  restore_arena_bytes_.Increment(static_cast<double>(bytes_from_arena));
}

void NodeMetrics::RestoreFailed(absl::StatusCode code) {
  restore_failures_.Count(absl::Status(code, ""));
  log_.Warning("this node's part of a load failed", {{"code", CodeName(code)}});
}

void NodeMetrics::ChecksumMismatch() { checksum_failures_.Increment(); }

void NodeMetrics::KeptImageChanged() { kept_images_changed_.Increment(); }

void NodeMetrics::ArenaUsed(uint64_t used_bytes, uint64_t kept_bytes, uint64_t total_bytes) {
  arena_used_bytes_.Set(static_cast<double>(used_bytes));
  arena_kept_bytes_.Set(static_cast<double>(kept_bytes));
  arena_bytes_.Set(static_cast<double>(total_bytes));
}

void NodeMetrics::ArenaWaiting(int requests) { arena_waiting_.Set(requests); }

void NodeMetrics::PersistPaused(bool paused) {
  persist_paused_.Set(paused ? 1 : 0);
  log_.Info(paused ? "persist paused" : "persist resumed");
}

void NodeMetrics::CoordinatorCallRetried(absl::StatusCode code) {
  coordinator_retries_.Count(absl::Status(code, ""));
}

void NodeMetrics::FallbackInUse(absl::string_view what) {
  const std::string name(what);
  {
    absl::MutexLock lock(&mutex_);
    prometheus::Gauge*& gauge = fallbacks_[name];
    if (gauge == nullptr) gauge = &fallback_family_.Add({{"what", name}});
    if (gauge->Value() != 0) return;
    gauge->Set(1);
  }
  log_.Warning("a degraded way is in use", {{"what", name}});
}

void NodeMetrics::Warning(absl::string_view text) {
  warnings_.Increment();
  log_.Warning({text.data(), text.size()});
}

}  // namespace ckptd
