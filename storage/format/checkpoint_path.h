// Names within a store, in the one place that makes them and checks what came
// from outside.
//
//   <store>/<job>/step-<step>/data-<attempt>-<node>-<n>.safetensors
//   <store>/<job>/step-<step>/manifest.pb
#ifndef CKPTD_STORAGE_FORMAT_CHECKPOINT_PATH_H_
#define CKPTD_STORAGE_FORMAT_CHECKPOINT_PATH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace ckptd {

// 1 to 128 of A-Z a-z 0-9 . _ -, not beginning with '.' or '-'. INVALID_ARGUMENT
// with a shortened, printable form of the name and this rule.
[[nodiscard]] absl::Status ValidateJobName(std::string_view job);
[[nodiscard]] absl::Status ValidateNodeName(std::string_view node);  // the same rule, at most 63
// A tensor's or value's name: 1 to 4096 bytes, anything but NUL; valid UTF-8.
[[nodiscard]] absl::Status ValidateEntryName(std::string_view name);

inline constexpr std::string_view kManifestName = "manifest.pb";

std::string StepFolder(uint64_t step);  // "step-40"
std::optional<uint64_t> ParseStepFolder(std::string_view name);
// "e3s12": unique in a job for ever.
std::string AttemptName(uint64_t epoch, uint64_t save_number);
std::string DataFileName(uint64_t epoch, uint64_t save_number, std::string_view node, int index);
struct DataFileNameParts {
  uint64_t epoch = 0;
  uint64_t save_number = 0;
  std::string node;
  int index = 0;
};
std::optional<DataFileNameParts> ParseDataFileName(std::string_view name);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_CHECKPOINT_PATH_H_
