#include "daemon/coordinator/removal.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/storage_places.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

constexpr char kTemporaryPrefix[] = ".tmp-";

// What another hand removed already is as good as removed.
absl::Status RemoveIfThere(FileSystem& file_system, const std::string& path) {
  const absl::Status status = file_system.Remove(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::Status RemoveManifest(FileSystem& file_system, Catalog& catalog,
                            const std::string& job_folder, const v1::CheckpointRecord& record) {
  const std::string& job = record.summary().job();
  const uint64_t step = record.summary().step();
  absl::Status status = RemoveIfThere(file_system, ManifestPath(job_folder, step));
  if (status.ok()) status = file_system.SyncDirectory(StepPath(job_folder, step));
  if (absl::IsNotFound(status)) status = absl::OkStatus();  // someone removed the folder
  if (status.ok()) status = catalog.RemoveCheckpoint(job, step);
  return Annotate(status, absl::StrCat("removing ", CheckpointName(job, step)));
}

absl::Status RemoveDataFiles(FileSystem& file_system, const std::string& job_folder,
                             const v1::CheckpointRecord& record, const FilePaths& named_by_others) {
  const std::string own_folder = StepFolder(record.summary().step()) + "/";
  absl::Status first_error;
  bool all_removed = true;
  for (const v1::DataFile& file : record.files()) {
    if (file.path().rfind(own_folder, 0) != 0) continue;
    if (named_by_others.count(file.path()) > 0) {
      all_removed = false;
      continue;
    }
    first_error.Update(RemoveIfThere(file_system, absl::StrCat(job_folder, "/", file.path())));
  }
  if (!first_error.ok() || !all_removed) return first_error;
  const absl::Status status =
      file_system.RemoveDirectory(StepPath(job_folder, record.summary().step()));
  // Files of other attempts: collection's.
  if (absl::IsFailedPrecondition(status) || absl::IsNotFound(status)) return absl::OkStatus();
  return status;
}

namespace {

class Collector {
 public:
  Collector(FileSystem& file_system, const std::string& job_folder, const CollectionRules& rules)
      : file_system_(file_system), job_folder_(job_folder), rules_(rules) {}

  Collected Run() {
    auto folders = file_system_.List(job_folder_);
    if (!folders.ok()) {
      if (!absl::IsNotFound(folders.status())) collected_.first_error.Update(folders.status());
      return collected_;
    }
    for (const DirectoryEntry& folder : *folders) {
      const std::optional<uint64_t> step = ParseStepFolder(folder.name);
      if (folder.is_directory && step.has_value()) CollectStep(*step, folder);
    }
    return collected_;
  }

 private:
  void CollectStep(uint64_t step, const DirectoryEntry& folder) {
    auto entries = file_system_.List(StepPath(job_folder_, step));
    if (!entries.ok()) return collected_.first_error.Update(entries.status());
    const bool has_manifest =
        std::any_of(entries->begin(), entries->end(),
                    [](const DirectoryEntry& entry) { return entry.name == kManifestName; });
    const bool only_temporary = has_manifest && !rules_.is_known(step);
    size_t left = entries->size();
    for (const DirectoryEntry& entry : *entries) {
      if (entry.is_directory || entry.modified >= rules_.older_than) continue;
      if (IsTemporary(entry) || (!only_temporary && IsLeftover(step, folder.name, entry))) {
        if (Remove(folder.name, entry)) --left;
      }
    }
    // A node may be about to write into a folder that was young before we came.
    if (left == 0 && folder.modified < rules_.older_than) {
      const absl::Status status = file_system_.RemoveDirectory(StepPath(job_folder_, step));
      if (!absl::IsFailedPrecondition(status)) collected_.first_error.Update(status);
    }
  }

  static bool IsTemporary(const DirectoryEntry& entry) {
    return entry.name.rfind(kTemporaryPrefix, 0) == 0;
  }

  bool IsLeftover(uint64_t step, const std::string& folder, const DirectoryEntry& entry) const {
    const std::optional<DataFileNameParts> parts = ParseDataFileName(entry.name);
    if (!parts.has_value()) return false;
    return !rules_.is_in_flight(step, {parts->epoch, parts->save_number}, entry.modified) &&
           !rules_.is_live(absl::StrCat(folder, "/", entry.name));
  }

  // True if it is gone.
  bool Remove(const std::string& folder, const DirectoryEntry& entry) {
    const absl::Status status =
        file_system_.Remove(absl::StrCat(job_folder_, "/", folder, "/", entry.name));
    collected_.first_error.Update(status);
    if (!status.ok()) return false;
    ++collected_.files;
    collected_.bytes += entry.size_bytes;
    return true;
  }

  FileSystem& file_system_;
  const std::string& job_folder_;
  const CollectionRules& rules_;
  Collected collected_;
};

}  // namespace

Collected CollectLeftovers(FileSystem& file_system, const std::string& job_folder,
                           const CollectionRules& rules) {
  return Collector(file_system, job_folder, rules).Run();
}

}  // namespace ckptd
