#include "storage/format/checkpoint_path.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "storage/format/text.h"

namespace ckptd {
namespace {

constexpr size_t kMaxJobNameBytes = 128;
constexpr size_t kMaxNodeNameBytes = 63;
constexpr size_t kMaxEntryNameBytes = 4096;
constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kDataPrefix = "data-e";
constexpr std::string_view kDataSuffix = ".safetensors";

absl::Status ValidateFileSystemName(std::string_view name, const char* what, size_t max_bytes) {
  const bool good_characters = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
  });
  if (!name.empty() && name.size() <= max_bytes && good_characters && name[0] != '.' &&
      name[0] != '-') {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " ", Printable(name), " is not valid: it must be 1 to ", max_bytes,
                   " of the characters A-Z a-z 0-9 . _ - and not begin with '.' or '-'"));
}

bool ConsumePrefix(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// A number as we write it: decimal, no sign, no leading zeros.
template <typename Number>
bool ConsumeNumber(std::string_view* text, Number* number) {
  const char* const begin = text->data();
  if (text->empty() || !absl::ascii_isdigit(text->front())) return false;
  const auto [end, error] = std::from_chars(begin, begin + text->size(), *number);
  if (error != std::errc()) return false;
  if (*begin == '0' && end != begin + 1) return false;
  text->remove_prefix(end - begin);
  return true;
}

}  // namespace

absl::Status ValidateJobName(std::string_view job) {
  return ValidateFileSystemName(job, "job name", kMaxJobNameBytes);
}

absl::Status ValidateNodeName(std::string_view node) {
  return ValidateFileSystemName(node, "node name", kMaxNodeNameBytes);
}

absl::Status ValidateEntryName(std::string_view name) {
  if (name.empty()) return absl::InvalidArgumentError("an empty name");
  if (name.size() > kMaxEntryNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the name ", Printable(name),
                                                   " is too long: at most ", kMaxEntryNameBytes,
                                                   " bytes are allowed"));
  }
  if (name.find('\0') != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name ", Printable(name), " has a NUL character"));
  }
  if (!IsValidUtf8(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name ", Printable(name), " is not valid UTF-8"));
  }
  return absl::OkStatus();
}

std::string StepFolder(uint64_t step) { return absl::StrCat("step-", step); }

std::optional<uint64_t> ParseStepFolder(std::string_view name) {
  uint64_t step = 0;
  if (!ConsumePrefix(&name, kStepPrefix) || !ConsumeNumber(&name, &step) || !name.empty()) {
    return std::nullopt;
  }
  return step;
}

std::string AttemptName(uint64_t epoch, uint64_t save_number) {
  return absl::StrCat("e", epoch, "s", save_number);
}

std::string DataFileName(uint64_t epoch, uint64_t save_number, std::string_view node, int index) {
  return absl::StrCat("data-", AttemptName(epoch, save_number), "-",
                      absl::string_view(node.data(), node.size()), "-", index, ".safetensors");
}

std::optional<DataFileNameParts> ParseDataFileName(std::string_view name) {
  DataFileNameParts parts;
  if (!ConsumePrefix(&name, kDataPrefix) || !ConsumeNumber(&name, &parts.epoch) ||
      !ConsumePrefix(&name, "s") || !ConsumeNumber(&name, &parts.save_number) ||
      !ConsumePrefix(&name, "-")) {
    return std::nullopt;
  }
  if (name.size() < kDataSuffix.size() ||
      name.substr(name.size() - kDataSuffix.size()) != kDataSuffix) {
    return std::nullopt;
  }
  name.remove_suffix(kDataSuffix.size());
  // The node's name may have dashes: the index is behind the last.
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  parts.node = std::string(name.substr(0, dash));
  name.remove_prefix(dash + 1);
  if (!ValidateNodeName(parts.node).ok() || !ConsumeNumber(&name, &parts.index) || !name.empty()) {
    return std::nullopt;
  }
  return parts;
}

}  // namespace ckptd
