// Is the manifest of a checkpoint still what the catalog knows? The catalog answers
// loads faster, but storage is the truth: damage there must not go unnoticed.
#ifndef CKPTD_DAEMON_COORDINATOR_STORED_MANIFEST_H_
#define CKPTD_DAEMON_COORDINATOR_STORED_MANIFEST_H_

#include <string>

#include "absl/status/status.h"
#include "ckptd/v1/catalog.pb.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// Reads all of the manifest and compares its checksum, then its frame with the record's
// (which has that checksum and the length). DATA_LOSS naming the file, what is wrong and
// what to do; NOT_FOUND when it is gone: without its manifest it is no checkpoint.
[[nodiscard]] absl::Status CheckStoredManifest(FileSystem& file_system,
                                               const std::string& job_folder,
                                               const v1::CheckpointRecord& record);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_STORED_MANIFEST_H_
