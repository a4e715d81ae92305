#include "daemon/server/cluster_secret.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {
namespace {

constexpr size_t kMaxFileBytes = 4096;

absl::Status CheckReaders(int descriptor, const std::string& path) {
  struct stat info = {};
  if (::fstat(descriptor, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("examining cluster secret ", path));
  }
  if ((info.st_mode & S_IRWXO) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("cluster secret ", path, " can be read by every user; chmod 600 ", path));
  }
  return absl::OkStatus();
}

absl::Status Make(const std::string& path) {
  std::array<char, 32> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return absl::ErrnoToStatus(errno, "drawing the cluster secret");
  }
  const std::string text =
      absl::BytesToHexString(absl::string_view(random.data(), random.size())) + "\n";
  UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid() && errno == EEXIST) return absl::OkStatus();
  if (!file.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("creating cluster secret ", path));
  }
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("writing cluster secret ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadClusterSecret(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("opening cluster secret ", path));
  }
  if (absl::Status status = CheckReaders(file.get(), path); !status.ok()) return status;
  std::array<char, kMaxFileBytes> buffer;
  const ssize_t size = ::read(file.get(), buffer.data(), buffer.size());
  if (size < 0) return absl::ErrnoToStatus(errno, absl::StrCat("reading cluster secret ", path));
  std::string secret(absl::StripAsciiWhitespace(absl::string_view(buffer.data(), size)));
  if (secret.size() < kMinClusterSecretBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("cluster secret ", path, " has ", secret.size(), " characters, fewer than ",
                     kMinClusterSecretBytes, "; remove it and the coordinator makes a new one"));
  }
  return secret;
}

absl::StatusOr<std::string> ReadOrMakeClusterSecret(const std::string& path) {
  if (absl::Status status = Make(path); !status.ok()) return status;
  return ReadClusterSecret(path);
}

}  // namespace ckptd
