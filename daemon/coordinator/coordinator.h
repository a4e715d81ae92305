// The coordinator: worlds, save and load plans, commits, the catalog and the
// removal of checkpoints, for all jobs of a cluster.
//
// Calls take a request and a `done` that is called exactly once: at once, or when
// what the call waits for has happened, or at its deadline (timeout_seconds), or
// at Stop. Callers are never blocked: decisions are made under one lock and take
// microseconds to milliseconds; planning and disk work run on own threads.
//
// What survives a restart is in the catalog (worlds, epochs, what is settled) and
// on storage (manifests). Attempts in flight are not: nodes resend their reports.
#ifndef CKPTD_DAEMON_COORDINATOR_COORDINATOR_H_
#define CKPTD_DAEMON_COORDINATOR_COORDINATOR_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/coordinator/probe.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/done.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

struct CoordinatorOptions {
  // RocksDB's folder; created if its parent exists.
  std::string catalog_path;
  // Where checkpoints are kept: name -> absolute folder, which must exist. A join
  // that names no store gets the one called "default", or the only one.
  std::map<std::string, std::string> stores;
  std::string software_version;

  // How long a new world waits for the reports of nodes that were in an older
  // world of its job and are not in the new one.
  absl::Duration settle_grace = absl::Seconds(5);
  // How long an older world's wholly staged save may take to be finished.
  absl::Duration settle_finish_timeout = absl::Minutes(10);
  // No call waits longer than this, whatever its timeout_seconds.
  absl::Duration longest_wait = absl::Hours(24);
  // A load that was planned keeps its checkpoint from being removed until all its
  // nodes have finished, at most this long.
  absl::Duration longest_load = absl::Hours(2);

  // Files of failed attempts are removed when they are older than this; those of attempts
  // of a running world of which this coordinator knows no end, after longest_wait.
  absl::Duration failed_attempt_age = absl::Hours(1);
  absl::Duration collection_interval = absl::Minutes(10);
};

// Thread-safe.
class Coordinator {
 public:
  // Opens the catalog and reconciles it with the manifests on the stores.
  // FAILED_PRECONDITION when another coordinator holds the catalog, NOT_FOUND
  // when a store's folder is missing. All references must outlive the coordinator.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(CoordinatorOptions options,
                                                             FileSystem& file_system,
                                                             const Clock& clock, Alarms& alarms,
                                                             CoordinatorProbe& probe);
  // As Stop().
  ~Coordinator();

  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  void JoinWorld(const v1::JoinWorldRequest& request, Done<v1::JoinWorldResponse> done);
  void PlanSave(const v1::PlanSaveRequest& request, Done<v1::PlanSaveResponse> done);
  void ReportStaged(const v1::ReportStagedRequest& request, Done<v1::ReportStagedResponse> done);
  void CommitSave(const v1::CommitSaveRequest& request, Done<v1::CommitSaveResponse> done);
  void PlanLoad(const v1::PlanLoadRequest& request, Done<v1::PlanLoadResponse> done);
  void FinishLoad(const v1::FinishLoadRequest& request, Done<v1::FinishLoadResponse> done);
  void ListCheckpoints(const v1::AuthorizedListCheckpoints& request,
                       Done<v1::ListCheckpointsResponse> done);
  void ShowCheckpoint(const v1::AuthorizedShowCheckpoint& request,
                      Done<v1::ShowCheckpointResponse> done);
  void RemoveCheckpoints(const v1::AuthorizedRemoveCheckpoints& request,
                         Done<v1::RemoveCheckpointsResponse> done);

  // From now on new worlds, plans and loads are refused with UNAVAILABLE; saves
  // that are under way go on. Idempotent.
  void Drain();
  // Blocks until no save is under way, at most `limit`. False if some still are.
  bool AwaitSavesFinished(absl::Duration limit);
  // Answers all waiting calls with UNAVAILABLE, finishes the commits that have
  // begun, joins all threads and closes the catalog. Idempotent.
  void Stop();

 private:
  class Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_COORDINATOR_H_
