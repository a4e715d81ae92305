// At start: makes the catalog say what the manifests say. Storage is the truth.
#ifndef CKPTD_DAEMON_COORDINATOR_RECONCILE_H_
#define CKPTD_DAEMON_COORDINATOR_RECONCILE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptd/v1/catalog.pb.h"
#include "daemon/coordinator/catalog.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

struct Reconciled {
  std::vector<v1::JobRecord> jobs;
  std::vector<v1::CheckpointRecord> checkpoints;  // by job, then step
  // Manifests that can't be read: these steps don't exist until someone mends them.
  std::vector<std::string> warnings;
};

// `stores`: name -> folder; NOT_FOUND when a folder is missing (a file system that is
// not mounted must not look like removed checkpoints).
//
// What can't be read below a store's folder is a warning, and its record stays. Records whose
// manifest is gone are dropped; manifests that the catalog lacks, or has another version of, are
// read and added. Of the others only the frame is read. Epochs are raised above those that any data
// file's name carries, so that they never repeat.
absl::StatusOr<Reconciled> ReconcileCatalog(FileSystem& file_system, Catalog& catalog,
                                            const std::map<std::string, std::string>& stores);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_RECONCILE_H_
