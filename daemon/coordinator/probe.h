// What the coordinator tells about itself. The code says what happened, never a
// metric's name; the server turns these calls into metrics and log lines.
//
// Calls come from any thread, some with the coordinator's lock held: be short,
// don't block, don't call back.
#ifndef CKPTD_DAEMON_COORDINATOR_PROBE_H_
#define CKPTD_DAEMON_COORDINATOR_PROBE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace ckptd {

struct CommittedSave {
  std::string job;
  uint64_t step = 0;
  uint64_t bytes = 0;  // of the data files that the manifest names
  absl::Time committed;
  double blocked_seconds = 0;   // the longest of all ranks
  double snapshot_seconds = 0;  // the longest of all nodes
  double persist_seconds = 0;   // the longest of all nodes
  double commit_seconds = 0;    // from the last node's report to the catalog record
};

class CoordinatorProbe {
 public:
  virtual ~CoordinatorProbe() = default;

  // From the first rank's join to the epoch.
  virtual void WorldFormed(const std::string& /*job*/, uint32_t /*ranks*/, double /*seconds*/) {}

  // From the last node's layouts to the plan.
  virtual void PlanFinished(double /*seconds*/) {}
  virtual void SaveCommitted(const CommittedSave& /*save*/) {}
  // ABORTED: abandoned by a newer world.
  virtual void SaveFailed(const std::string& /*job*/, uint64_t /*step*/,
                          const absl::Status& /*why*/) {}

  // From the last node's wishes to the plan.
  virtual void LoadPlanned(double /*seconds*/) {}
  // One node's part.
  virtual void LoadFinished(const std::string& /*job*/, uint64_t /*step*/, uint64_t /*bytes_read*/,
                            double /*seconds*/, const absl::Status& /*result*/) {}

  virtual void CheckpointRemoved(const std::string& /*job*/, uint64_t /*step*/) {}
  // Files of failed attempts that were removed from storage.
  virtual void FilesCollected(uint64_t /*files*/, uint64_t /*bytes*/) {}

  // At start and after every commit and removal: which checkpoint each job committed
  // last and when, and how many it has.
  virtual void JobState(const std::string& /*job*/, uint64_t /*last_step*/,
                        absl::Time /*last_success*/, uint64_t /*checkpoints*/) {}

  // Something a person should know, that no call's answer carries: a damaged
  // manifest, a file that could not be removed.
  virtual void Warning(const std::string& /*message*/) {}
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_PROBE_H_
