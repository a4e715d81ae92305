#include "storage/file_system/posix_path.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/file_system/posix_error.h"

namespace ckptd {

int ScopedFd::Close() {
  const int fd = std::exchange(fd_, -1);
  // Not retried: Linux has closed the descriptor even when it says EINTR.
  return fd >= 0 && ::close(fd) != 0 && errno != EINTR ? errno : 0;
}

int OpenAt(int directory, const char* name, int flags, unsigned mode) {
  int fd;
  do {
    fd = ::openat(directory, name, flags | O_CLOEXEC | O_NOFOLLOW, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

absl::StatusOr<ScopedFd> OpenDirectory(const std::string& path, const char* operation) {
  if (path.empty() || path[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, " ", path, ": the path is not absolute"));
  }
  ScopedFd directory(OpenAt(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY));
  if (!directory.is_open()) return PosixError(errno, operation, path);
  const std::vector<std::string> components = absl::StrSplit(path, '/', absl::SkipEmpty());
  for (size_t i = 0; i < components.size(); ++i) {
    // A directory that is only passed through need not be readable.
    const int flags = (i + 1 == components.size() ? O_RDONLY : O_PATH) | O_DIRECTORY;
    ScopedFd next(OpenAt(directory.get(), components[i].c_str(), flags));
    if (!next.is_open()) {
      // O_DIRECTORY | O_NOFOLLOW says ENOTDIR for a symbolic link: say which it was.
      char target[1];
      const int error = errno;
      if (error == ENOTDIR &&
          ::readlinkat(directory.get(), components[i].c_str(), target, sizeof(target)) >= 0) {
        return absl::PermissionDeniedError(absl::StrCat(operation, " ", path, ": ", components[i],
                                                        " is a symbolic link, none is followed "
                                                        "inside a store"));
      }
      return PosixError(error, operation, path);
    }
    directory = std::move(next);
  }
  return directory;
}

absl::StatusOr<PlaceInDirectory> OpenParent(const std::string& path, const char* operation) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash + 1 == path.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, " ", path, ": not an absolute path of a file"));
  }
  absl::StatusOr<ScopedFd> directory =
      OpenDirectory(slash == 0 ? "/" : path.substr(0, slash), operation);
  if (!directory.ok()) return directory.status();
  return PlaceInDirectory{*std::move(directory), path.substr(slash + 1)};
}

}  // namespace ckptd
