// Ways to files and directories that follow no symbolic link.
#ifndef CKPTD_STORAGE_FILE_SYSTEM_POSIX_PATH_H_
#define CKPTD_STORAGE_FILE_SYSTEM_POSIX_PATH_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptd {

// Owns a file descriptor.
class ScopedFd {
 public:
  ScopedFd() = default;
  explicit ScopedFd(int fd) : fd_(fd) {}
  ScopedFd(ScopedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ScopedFd& operator=(ScopedFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~ScopedFd() { Reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // 0, or the errno of close(). Closed either way.
  int Close();

 private:
  void Reset() { static_cast<void>(Close()); }
  int fd_ = -1;
};

// A name and the open directory that it is in.
struct PlaceInDirectory {
  ScopedFd directory;
  std::string name;
};

// Opens an absolute path's directory, component by component, through no symbolic
// link. `operation` is for the message.
absl::StatusOr<ScopedFd> OpenDirectory(const std::string& path, const char* operation);
// Opens the directory that holds the path's last component, which need not exist.
absl::StatusOr<PlaceInDirectory> OpenParent(const std::string& path, const char* operation);

// openat() that retries EINTR, with O_CLOEXEC and O_NOFOLLOW. -1 and errno on failure.
int OpenAt(int directory, const char* name, int flags, unsigned mode = 0);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_POSIX_PATH_H_
