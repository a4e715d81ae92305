// The commit: what makes a checkpoint exist, in this order.
//
//   1. Every node has made its files durable (their reports say so).
//   2. Every file that the manifest names is on the store with its size.
//   3. The manifest appears in one step and is durable when it has (FileSystem::
//      Commit): fails if one exists, or replaces it where overwriting was asked for.
//   4. The catalog's record, one synced batch. From here on loads find it.
//   5. Where an older manifest was replaced: the files that only it named are removed.
//
// When 3 or 4 fails, what they may have done is taken back (ResolveDoubt): the name may
// have appeared although its folder could not be synced. Only when that is durable is
// the save reported as merely failed; until then the commit is in doubt, and the
// coordinator commits, removes and collects nothing else of that job.
//
// A crash before 3 leaves no checkpoint (or the older one) and files that collection
// removes. A crash between 3 and 4 is mended at the next start (reconcile.h). A crash
// in 5 leaves files for collection.
#ifndef CKPTD_DAEMON_COORDINATOR_COMMIT_H_
#define CKPTD_DAEMON_COORDINATOR_COMMIT_H_

#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/catalog.pb.h"
#include "daemon/coordinator/catalog.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

struct Commit {
  v1::Manifest manifest;
  v1::JobRecord job;
  std::string store;
  std::string store_folder;
  bool overwrite = false;
};

// A commit that failed after its manifest may have appeared.
struct CommitDoubt {
  Commit commit;
  std::string bytes;     // of its manifest
  std::string previous;  // those of the manifest that it was to replace; empty: none
  bool catalog_may_have_it = false;
};

// Steps 2 to 4. The record that is in the catalog now. ALREADY_EXISTS when the step
// has a manifest and overwriting was not asked for; DATA_LOSS naming a file that is
// missing or has another size. After an error store and catalog are durably as before,
// unless `doubt` was set.
absl::StatusOr<v1::CheckpointRecord> CommitCheckpoint(FileSystem& file_system, Catalog& catalog,
                                                      const Commit& commit,
                                                      std::optional<CommitDoubt>& doubt);

// Takes the commit back: the older manifest again, or none. After an error it is still
// in doubt; call again later. `job` is the job's record as it is now.
absl::Status ResolveDoubt(FileSystem& file_system, Catalog& catalog, const v1::JobRecord& job,
                          const CommitDoubt& doubt);

// Step 5: those of `replaced` in its own folder that no manifest names (`kept`) any
// more. What can't be removed is left to collection.
absl::Status RemoveReplacedFiles(FileSystem& file_system, const std::string& job_folder,
                                 const v1::CheckpointRecord& replaced,
                                 const std::set<std::string>& kept);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_COMMIT_H_
