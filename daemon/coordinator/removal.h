// Taking things off the store: whole checkpoints that someone asked to remove, and
// the files that failed attempts left behind.
#ifndef CKPTD_DAEMON_COORDINATOR_REMOVAL_H_
#define CKPTD_DAEMON_COORDINATOR_REMOVAL_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptd/v1/catalog.pb.h"
#include "daemon/coordinator/catalog.h"
#include "daemon/coordinator/save_round.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// Paths relative to the job's folder, as manifests name them.
using FilePaths = std::set<std::string>;

// The first half of a removal: the manifest, durably (from here on it is no
// checkpoint), then the catalog's record. After an error it may still exist.
absl::Status RemoveManifest(FileSystem& file_system, Catalog& catalog,
                            const std::string& job_folder, const v1::CheckpointRecord& record);

// The second half: its data files, but for those in `named_by_others`; then its folder,
// when nothing is left in it. What an error leaves behind is collection's.
absl::Status RemoveDataFiles(FileSystem& file_system, const std::string& job_folder,
                             const v1::CheckpointRecord& record, const FilePaths& named_by_others);

struct CollectionRules {
  // Files that a live manifest names. Asked per file, at the moment of its removal.
  std::function<bool(const std::string& path)> is_live;
  // Attempts that may still be committed, by the time of a file's last change. Asked likewise.
  std::function<bool(uint64_t step, AttemptKey attempt, absl::Time modified)> is_in_flight;
  // Is the manifest in this step's folder one that is_live speaks for? Where it is not
  // (it can't be read, it is being removed, another store's is known instead) no data
  // file of the folder is touched.
  std::function<bool(uint64_t step)> is_known;
  absl::Time older_than;
};

struct Collected {
  uint64_t files = 0;
  uint64_t bytes = 0;
  absl::Status first_error;
};

// Removes, of one job: data files that no manifest names and no attempt in flight may
// name, and ".tmp-" files, both only when last written before older_than; then step
// folders that are empty and as old. Touches nothing with a name that ckptd doesn't give.
Collected CollectLeftovers(FileSystem& file_system, const std::string& job_folder,
                           const CollectionRules& rules);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_REMOVAL_H_
