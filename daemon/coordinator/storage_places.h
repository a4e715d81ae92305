// Where checkpoints of one job lie: absolute paths from names that were checked.
#ifndef CKPTD_DAEMON_COORDINATOR_STORAGE_PLACES_H_
#define CKPTD_DAEMON_COORDINATOR_STORAGE_PLACES_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {

// Above this a manifest is not read.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;

inline std::string JobFolder(const std::string& store_folder, const std::string& job) {
  return absl::StrCat(store_folder, "/", job);
}
inline std::string StepPath(const std::string& job_folder, uint64_t step) {
  return absl::StrCat(job_folder, "/", StepFolder(step));
}
inline std::string ManifestPath(const std::string& job_folder, uint64_t step) {
  return absl::StrCat(StepPath(job_folder, step), "/manifest.pb");
}

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_STORAGE_PLACES_H_
