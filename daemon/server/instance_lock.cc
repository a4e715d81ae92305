#include "daemon/server/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

std::string Holder(int file) {
  std::array<char, 32> text;
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  if (size <= 0) return "another process";
  return absl::StrCat("process ", absl::StripAsciiWhitespace(absl::string_view(text.data(), size)));
}

}  // namespace

absl::StatusOr<InstanceLock> InstanceLock::Acquire(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("opening lock file ", path));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      return absl::ErrnoToStatus(errno, absl::StrCat("locking ", path));
    }
    return absl::AlreadyExistsError(
        absl::StrCat("a ckptd is already running here: ", Holder(file.get()), " holds ", path,
                     "; stop it first, or give this one its own --socket-dir and --state-dir"));
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("writing lock file ", path));
  }
  return InstanceLock(std::move(file));
}

}  // namespace ckptd
