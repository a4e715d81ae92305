#include "daemon/coordinator/stored_manifest.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/storage_places.h"
#include "storage/format/manifest.h"

namespace ckptd {

absl::Status CheckStoredManifest(FileSystem& file_system, const std::string& job_folder,
                                 const v1::CheckpointRecord& record) {
  const v1::CheckpointSummary& summary = record.summary();
  const std::string path = ManifestPath(job_folder, summary.step());
  const auto bytes = file_system.ReadWhole(path, kMaxManifestBytes);
  if (absl::IsNotFound(bytes.status())) {
    return absl::NotFoundError(
        absl::StrCat("its manifest ", path,
                     " is gone, and without it there is no checkpoint (its data files "
                     "are left alone): if the store is mounted, load another step"));
  }
  if (!bytes.ok()) return bytes.status();
  absl::Status status = CheckManifestFrame(*bytes, path);
  if (status.ok() &&
      std::string_view(*bytes).substr(0, kManifestFrameBytes) != record.manifest_frame()) {
    status = absl::DataLossError(
        absl::StrCat("manifest ", path, ": it is whole, but not the one that was committed"));
  }
  if (!absl::IsDataLoss(status)) return status;
  return absl::DataLossError(absl::StrCat(status.message(), "; `ckptctl verify ", summary.job(),
                                          " ", summary.step(),
                                          "` checks this checkpoint, other steps can be loaded"));
}

}  // namespace ckptd
