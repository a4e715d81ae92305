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

// The bytes of the manifest that is there; empty: none.
absl::StatusOr<std::string> ReadManifest(FileSystem& file_system, const std::string& path) {
  auto bytes = file_system.ReadWhole(path, kMaxManifestBytes);
  return absl::IsNotFound(bytes.status()) ? absl::StatusOr<std::string>("") : bytes;
}

// Steps 3 and 4, of which an error may leave either done.
absl::Status Apply(FileSystem& file_system, Catalog& catalog, CommitDoubt& doubt,
                   const v1::CheckpointRecord& record) {
  const Commit& commit = doubt.commit;
  const std::string job_folder = JobFolder(commit.store_folder, commit.manifest.job());
  absl::Status status = WriteManifest(file_system, commit, job_folder, doubt.bytes);
  if (!status.ok()) return status;
  doubt.catalog_may_have_it = true;
  return catalog.PutCheckpoint(commit.job, record, commit.manifest);
}

}  // namespace

absl::StatusOr<v1::CheckpointRecord> CommitCheckpoint(FileSystem& file_system, Catalog& catalog,
                                                      const Commit& commit,
                                                      std::optional<CommitDoubt>& doubt) {
  const std::string job_folder = JobFolder(commit.store_folder, commit.manifest.job());
  absl::Status status = CheckFilesAreThere(file_system, job_folder, commit.manifest);
  if (!status.ok()) return status;
  CommitDoubt attempt{.commit = commit, .bytes = EncodeManifest(commit.manifest)};
  // What a load will check is checked before it can be relied on.
  if (auto decoded = DecodeManifest(attempt.bytes, "the manifest to be written"); !decoded.ok()) {
    return decoded.status();
  }
  if (commit.overwrite) {
    auto previous = ReadManifest(file_system, ManifestPath(job_folder, commit.manifest.step()));
    if (!previous.ok()) return previous.status();
    attempt.previous = *std::move(previous);
  }
  v1::CheckpointRecord record =
      MakeCheckpointRecord(commit.manifest, commit.store,
                           std::string_view(attempt.bytes).substr(0, kManifestFrameBytes));
  status = Apply(file_system, catalog, attempt, record);
  if (status.ok()) return record;
  if (absl::IsAlreadyExists(status)) {
    return absl::AlreadyExistsError(
        absl::StrCat(CheckpointName(commit.manifest.job(), commit.manifest.step()),
                     " is committed already; save with overwrite to replace it"));
  }
  const absl::Status taken_back = ResolveDoubt(file_system, catalog, commit.job, attempt);
  if (taken_back.ok()) return status;
  doubt = std::move(attempt);
  return Annotate(status, absl::StrCat("whether the checkpoint exists is in doubt, for it could "
                                       "not be taken back (",
                                       taken_back.message(), "); mend the store"));
}

absl::Status ResolveDoubt(FileSystem& file_system, Catalog& catalog, const v1::JobRecord& job,
                          const CommitDoubt& doubt) {
  const v1::Manifest& manifest = doubt.commit.manifest;
  const std::string job_folder = JobFolder(doubt.commit.store_folder, manifest.job());
  const std::string path = ManifestPath(job_folder, manifest.step());
  auto current = ReadManifest(file_system, path);
  if (!current.ok()) return current.status();
  absl::Status status;
  if (*current == doubt.bytes) {
    status = doubt.previous.empty()
                 ? file_system.Remove(path)
                 : file_system.Commit(path, doubt.previous, CommitMode::kReplace,
                                      {manifest.owner().user_id(), manifest.owner().group_id()});
  }
  // Whatever is there now: that it is, and that the other is not, must be durable.
  if (status.ok()) status = file_system.SyncDirectory(StepPath(job_folder, manifest.step()));
  if (absl::IsNotFound(status)) status = absl::OkStatus();
  if (!status.ok() || !doubt.catalog_may_have_it) return status;
  auto previous = DecodeManifest(doubt.previous, path);
  if (!previous.ok()) return catalog.RemoveCheckpoint(manifest.job(), manifest.step());
  const std::string_view frame = std::string_view(doubt.previous).substr(0, kManifestFrameBytes);
  return catalog.PutCheckpoint(job, MakeCheckpointRecord(*previous, doubt.commit.store, frame),
                               *previous);
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
