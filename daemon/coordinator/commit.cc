#include "daemon/coordinator/commit.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/storage_places.h"
#include "proto/rpc/status.h"
#include "storage/format/manifest.h"

namespace ckptd {
namespace {

// Step 2. Other steps' folders, which a manifest may name files of, are listed too.
absl::Status CheckFilesAreThere(FileSystem& file_system, const std::string& job_folder,
                                const v1::Manifest& manifest) {
  std::map<std::string, std::map<std::string, uint64_t>> sizes_of_folder;
  for (const v1::DataFile& file : manifest.files()) {
    const size_t slash = file.path().find('/');
    const std::string folder = file.path().substr(0, slash);
    auto [it, added] = sizes_of_folder.try_emplace(folder);
    if (added) {
      auto entries = file_system.List(absl::StrCat(job_folder, "/", folder));
      if (!entries.ok()) return entries.status();
      for (const DirectoryEntry& entry : *entries) it->second[entry.name] = entry.size_bytes;
    }
    auto found = it->second.find(file.path().substr(slash + 1));
    if (found == it->second.end()) {
      return absl::DataLossError(absl::StrCat(job_folder, "/", file.path(),
                                              " was reported durable but is not on the store; do "
                                              "node and coordinator mean the same folder?"));
    }
    if (found->second != file.size_bytes()) {
      return absl::DataLossError(absl::StrCat(job_folder, "/", file.path(), " has ", found->second,
                                              " bytes instead of ", file.size_bytes()));
    }
  }
  return absl::OkStatus();
}

absl::Status WriteManifest(FileSystem& file_system, const Commit& commit,
                           const std::string& job_folder, const std::string& bytes) {
  const FileOwner owner{commit.manifest.owner().user_id(), commit.manifest.owner().group_id()};
  absl::Status status = file_system.CreateDirectories(
      commit.store_folder,
      absl::StrCat(commit.manifest.job(), "/", StepFolder(commit.manifest.step())), owner);
  if (!status.ok()) return status;
  return file_system.Commit(ManifestPath(job_folder, commit.manifest.step()), bytes,
                            commit.overwrite ? CommitMode::kReplace : CommitMode::kFailIfExists,
                            owner);
}

}  // namespace

absl::StatusOr<v1::CheckpointRecord> CommitCheckpoint(FileSystem& file_system, Catalog& catalog,
                                                      const Commit& commit) {
  const std::string job_folder = JobFolder(commit.store_folder, commit.manifest.job());
  absl::Status status = CheckFilesAreThere(file_system, job_folder, commit.manifest);
  if (!status.ok()) return status;
  const std::string bytes = EncodeManifest(commit.manifest);
  // What a load will check is checked before it can be relied on.
  if (auto decoded = DecodeManifest(bytes, "the manifest to be written"); !decoded.ok()) {
    return decoded.status();
  }
  status = WriteManifest(file_system, commit, job_folder, bytes);
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(
        absl::StrCat(CheckpointName(commit.manifest.job(), commit.manifest.step()),
                     " is committed already; save with overwrite to replace it"));
  }
  if (!status.ok()) return status;
  v1::CheckpointRecord record = MakeCheckpointRecord(
      commit.manifest, commit.store, std::string_view(bytes).substr(0, kManifestFrameBytes));
  status = catalog.PutCheckpoint(commit.job, record, commit.manifest);
  if (!status.ok()) {
    return Annotate(status, "the checkpoint is on the store and will be found at the next start");
  }
  return record;
}

absl::Status RemoveReplacedFiles(FileSystem& file_system, const std::string& job_folder,
                                 const v1::CheckpointRecord& replaced,
                                 const std::set<std::string>& kept) {
  const std::string own_folder = StepFolder(replaced.summary().step()) + "/";
  absl::Status first_error;
  for (const v1::DataFile& file : replaced.files()) {
    if (kept.count(file.path()) > 0 || file.path().rfind(own_folder, 0) != 0) continue;
    first_error.Update(file_system.Remove(absl::StrCat(job_folder, "/", file.path())));
  }
  return first_error;
}

}  // namespace ckptd
