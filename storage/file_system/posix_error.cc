#include "storage/file_system/posix_error.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

namespace ckptd {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
    case ELOOP:  // a symbolic link where none is followed
      return absl::StatusCode::kPermissionDenied;
    case ENOTEMPTY:
    case ENOTDIR:
    case EISDIR:
      return absl::StatusCode::kFailedPrecondition;
    case EINVAL:
    case ENAMETOOLONG:
    case EFBIG:
      return absl::StatusCode::kInvalidArgument;
    case EAGAIN:
    case EBUSY:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ESTALE:
    case ETIMEDOUT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ECONNREFUSED:
    case ECONNRESET:
    case ENOTCONN:
      return absl::StatusCode::kUnavailable;
    case EIO:
    case EUCLEAN:  // "structure needs cleaning": a damaged file system
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

absl::Status PosixError(int error, std::string_view operation, std::string_view path) {
  // ErrnoToStatus for strerror's text, which it gets thread-safely.
  const std::string text(
      absl::ErrnoToStatus(error, absl::StrCat(View(operation), " ", View(path))).message());
  return absl::Status(CodeOf(error), text);
}

absl::Status NoSpaceError(std::string_view operation, std::string_view path, uint64_t needed_bytes,
                          uint64_t free_bytes) {
  return absl::ResourceExhaustedError(
      absl::StrCat(View(operation), " ", View(path), ": no space left, needs ",
                   BytesToString(needed_bytes), ", ", BytesToString(free_bytes),
                   " free; free space on it, raise the quota or keep fewer checkpoints"));
}

std::string BytesToString(uint64_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit < 5) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, View(kUnits[unit]));
}

}  // namespace ckptd
