#include "daemon/node/save_checks.h"

#include "absl/strings/str_cat.h"
#include "daemon/node/limits.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/tags.h"
#include "storage/format/text.h"

namespace ckptd {

absl::Status CheckSaveRequest(const v1::BeginSaveRequest& request) {
  if (request.attempt().epoch() == 0) {
    return absl::FailedPreconditionError("a reader can't save: join without `reader`");
  }
  if (request.attempt().save_number() == 0) {
    return absl::InvalidArgumentError("save numbers count from 1");
  }
  if (request.fingerprint().size() != kSha256Bytes) {
    return absl::InvalidArgumentError("a fingerprint is a SHA-256");
  }
  if (absl::Status status = CheckTags(request.tags()); !status.ok()) return status;
  return CheckTimeout(request.timeout_seconds()).status();
}

absl::Status CheckSmallContents(const CheckedLayout& layout, const v1::BeginSaveRequest& request) {
  if (static_cast<size_t>(request.small_size()) != layout.small.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.small_size(), " small contents for a layout with ",
                     layout.small.size(), " small tensors and values"));
  }
  uint64_t left = kMostSmallBytes;
  for (int i = 0; i < request.small_size(); ++i) {
    const v1::SmallContent& content = request.small(i);
    const CheckedSmall& entry = layout.small[i];
    const bool fits = content.sha256().size() == kSha256Bytes && content.size_bytes() <= left &&
                      (entry.is_value || content.size_bytes() == entry.size_bytes);
    if (!fits) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the content of ", Printable(entry.name), " has ", content.size_bytes(),
          " bytes and a hash of ", content.sha256().size(), "; expected ",
          entry.is_value ? absl::StrCat("at most ", left) : absl::StrCat(entry.size_bytes),
          " bytes and ", kSha256Bytes));
    }
    left -= content.size_bytes();
  }
  return absl::OkStatus();
}

}  // namespace ckptd
