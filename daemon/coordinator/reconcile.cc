#include "daemon/coordinator/reconcile.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/storage_places.h"
#include "proto/rpc/status.h"
#include "storage/format/manifest.h"

namespace ckptd {
namespace {

using CheckpointKey = std::pair<std::string, uint64_t>;  // job, step

class Reconciler {
 public:
  Reconciler(FileSystem& file_system, Catalog& catalog)
      : file_system_(file_system), catalog_(catalog) {}

  absl::Status LoadCatalog() {
    auto jobs = catalog_.Jobs();
    if (!jobs.ok()) return jobs.status();
    for (v1::JobRecord& job : *jobs) jobs_[job.job()] = std::move(job);
    auto checkpoints = catalog_.Checkpoints();
    if (!checkpoints.ok()) return checkpoints.status();
    for (v1::CheckpointRecord& record : *checkpoints) {
      const CheckpointKey key{record.summary().job(), record.summary().step()};
      known_[key] = std::move(record);
    }
    return absl::OkStatus();
  }

  absl::Status VisitStore(const std::string& store, const std::string& folder) {
    auto entries = file_system_.List(folder);
    if (!entries.ok()) {
      return Annotate(entries.status(), absl::StrCat("store ", store, ": its folder ", folder,
                                                     " must exist and be readable"));
    }
    for (const DirectoryEntry& entry : *entries) {
      if (!entry.is_directory || !ValidateJobName(entry.name).ok()) continue;
      absl::Status status = VisitJob(store, entry.name, JobFolder(folder, entry.name));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Records of which no manifest was found.
  absl::Status DropTheRest(const std::map<std::string, std::string>& stores) {
    for (const auto& [key, record] : known_) {
      if (found_.count(key) > 0 || unreadable_.count(key) > 0) continue;
      if (unreadable_jobs_.count(key.first) > 0) continue;
      if (stores.count(record.summary().store()) == 0) {
        warnings_.push_back(absl::StrCat(CheckpointName(key.first, key.second), " is in store ",
                                         record.summary().store(), ", which is not configured"));
        continue;
      }
      absl::Status status = catalog_.RemoveCheckpoint(key.first, key.second);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  Reconciled Take() {
    Reconciled result{.warnings = std::move(warnings_)};
    for (auto& [name, job] : jobs_) result.jobs.push_back(std::move(job));
    for (auto& [key, record] : found_) result.checkpoints.push_back(std::move(record));
    return result;
  }

 private:
  absl::Status VisitJob(const std::string& store, const std::string& job,
                        const std::string& job_folder) {
    auto entries = file_system_.List(job_folder);
    if (!entries.ok()) {
      Skip(job, std::nullopt, entries.status());
      return absl::OkStatus();
    }
    uint64_t highest_epoch = 0;
    for (const DirectoryEntry& entry : *entries) {
      const std::optional<uint64_t> step = ParseStepFolder(entry.name);
      if (!entry.is_directory || !step.has_value()) continue;
      auto files = file_system_.List(StepPath(job_folder, *step));
      if (!files.ok()) {
        Skip(job, *step, files.status());
        continue;
      }
      bool has_manifest = false;
      for (const DirectoryEntry& file : *files) {
        has_manifest |= file.name == kManifestName;
        const auto parts = ParseDataFileName(file.name);
        if (parts.has_value()) highest_epoch = std::max(highest_epoch, parts->epoch);
      }
      if (!has_manifest) continue;
      absl::Status status = VisitManifest(store, job, job_folder, *step);
      if (!status.ok()) return status;
    }
    return RaiseEpoch(job, highest_epoch);
  }

  absl::Status VisitManifest(const std::string& store, const std::string& job,
                             const std::string& job_folder, uint64_t step) {
    const std::string path = ManifestPath(job_folder, step);
    const CheckpointKey key{job, step};
    if (auto other = found_.find(key); other != found_.end()) {
      warnings_.push_back(absl::StrCat(CheckpointName(job, step), " is in store ",
                                       other->second.summary().store(), " and in store ", store,
                                       ": the latter is ignored; remove one of them"));
      return absl::OkStatus();
    }
    std::string frame(kManifestFrameBytes, '\0');
    auto file = file_system_.Open(path, /*direct=*/false);
    absl::Status status = file.status();
    if (status.ok()) status = (*file)->ReadAt(0, std::as_writable_bytes(std::span(frame)));
    if (status.ok()) {
      auto known = known_.find(key);
      if (known != known_.end() && known->second.manifest_frame() == frame &&
          (*file)->size_bytes() == ManifestFileBytes(frame) &&
          known->second.summary().store() == store) {
        found_[key] = known->second;
        return absl::OkStatus();
      }
    }
    if (status.ok()) return AddManifest(store, job, step, path, frame);
    Skip(job, step, status);
    return absl::OkStatus();
  }

  // What can't be read now is no checkpoint now, but its record is kept: it may be mended.
  // A user's folder must not keep the other users' coordinator from starting.
  void Skip(const std::string& job, std::optional<uint64_t> step, const absl::Status& why) {
    const std::string what =
        step.has_value() ? CheckpointName(job, *step) : absl::StrCat("job ", job);
    warnings_.push_back(absl::StrCat("skipping ", what, ": ", why.message()));
    if (step.has_value()) {
      unreadable_.insert({job, *step});
    } else {
      unreadable_jobs_.insert(job);
    }
  }

  absl::Status AddManifest(const std::string& store, const std::string& job, uint64_t step,
                           const std::string& path, const std::string& frame) {
    auto bytes = file_system_.ReadWhole(path, kMaxManifestBytes);
    absl::StatusOr<v1::Manifest> manifest =
        bytes.ok() ? DecodeManifest(*bytes, path) : absl::StatusOr<v1::Manifest>(bytes.status());
    if (manifest.ok() && (manifest->job() != job || manifest->step() != step)) {
      manifest = absl::DataLossError(absl::StrCat(
          path, " says that it is ", CheckpointName(manifest->job(), manifest->step())));
    }
    if (!manifest.ok()) {
      warnings_.push_back(
          absl::StrCat("skipping ", CheckpointName(job, step), ": ", manifest.status().message()));
      return absl::OkStatus();
    }
    // Its commit may have been cut off before its name was durable.
    absl::Status status = file_system_.SyncDirectory(path.substr(0, path.rfind('/')));
    if (!status.ok()) {
      Skip(job, step, status);
      return absl::OkStatus();
    }
    v1::JobRecord& record = JobOf(job);
    if (!record.has_owner()) *record.mutable_owner() = manifest->owner();
    record.set_last_epoch(std::max(record.last_epoch(), manifest->attempt().epoch()));
    v1::CheckpointRecord added = MakeCheckpointRecord(*manifest, store, frame);
    status = catalog_.PutCheckpoint(record, added, *manifest);
    if (status.ok()) found_[{job, step}] = std::move(added);
    return status;
  }

  // A catalog that was lost: nothing of what left these files may be committed any more.
  absl::Status RaiseEpoch(const std::string& job, uint64_t epoch) {
    auto it = jobs_.find(job);
    if (epoch == 0 || (it != jobs_.end() && it->second.last_epoch() >= epoch)) {
      return absl::OkStatus();
    }
    v1::JobRecord& record = JobOf(job);
    record.set_last_epoch(epoch);
    return catalog_.PutJob(record);
  }

  v1::JobRecord& JobOf(const std::string& job) {
    v1::JobRecord& record = jobs_[job];
    record.set_job(job);
    return record;
  }

  FileSystem& file_system_;
  Catalog& catalog_;
  std::map<std::string, v1::JobRecord> jobs_;
  std::map<CheckpointKey, v1::CheckpointRecord> known_;
  std::map<CheckpointKey, v1::CheckpointRecord> found_;
  std::set<CheckpointKey> unreadable_;
  std::set<std::string> unreadable_jobs_;
  std::vector<std::string> warnings_;
};

}  // namespace

absl::StatusOr<Reconciled> ReconcileCatalog(FileSystem& file_system, Catalog& catalog,
                                            const std::map<std::string, std::string>& stores) {
  Reconciler reconciler(file_system, catalog);
  absl::Status status = reconciler.LoadCatalog();
  for (const auto& [store, folder] : stores) {
    if (status.ok()) status = reconciler.VisitStore(store, folder);
  }
  if (status.ok()) status = reconciler.DropTheRest(stores);
  if (!status.ok()) return Annotate(status, "reconciling the catalog with the stores");
  return reconciler.Take();
}

}  // namespace ckptd
