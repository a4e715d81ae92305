#include "daemon/server/start_checks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {
namespace {

// Trainers of every user reach the sockets; peer credentials say who they are.
constexpr mode_t kSocketFolderMode = 0755;
constexpr mode_t kStateFolderMode = 0700;
// Below it each job's folder is its owner's, 0750.
constexpr mode_t kStoreFolderMode = 0755;

absl::Status MakeFolder(const std::string& path, mode_t mode) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const bool last = slash == std::string::npos;
    const std::string prefix = path.substr(0, slash);
    if (::mkdir(prefix.c_str(), last ? mode : 0755) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(errno, absl::StrCat("creating folder ", prefix));
    }
    if (last) return absl::OkStatus();
  }
}

absl::Status CheckWritable(const std::string& path) {
  // An unnamed file leaves nothing behind; file systems without it get a named one.
  UniqueFd unnamed(::open(path.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (unnamed.valid()) return absl::OkStatus();
  const std::string probe = absl::StrCat(path, "/.tmp-ckptd-probe-", ::getpid());
  UniqueFd named(::open(probe.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  if (!named.valid()) {
    return absl::ErrnoToStatus(errno, absl::StrCat("creating a file in ", path));
  }
  ::unlink(probe.c_str());
  return absl::OkStatus();
}

void Prepare(std::string_view what, const std::string& path, mode_t mode,
             std::vector<std::string>& problems) {
  absl::Status status = MakeFolder(path, mode);
  if (status.ok()) status = CheckWritable(path);
  if (status.ok()) return;
  problems.push_back(absl::StrCat(absl::string_view(what.data(), what.size()), ": ",
                                  status.message(), "; create it, or make it writable for uid ",
                                  ::getuid()));
}

}  // namespace

absl::Status PrepareFolders(const ServerOptions& options) {
  std::vector<std::string> problems;
  Prepare("--socket-dir", options.socket_dir, kSocketFolderMode, problems);
  Prepare("--state-dir", options.state_dir, kStateFolderMode, problems);
  for (const auto& [name, path] : options.stores) {
    Prepare(absl::StrCat("--store ", name), path, kStoreFolderMode, problems);
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrJoin(problems, "\n"));
}

absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, absl::StrCat("examining ", path));
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is in the way and is no socket; move it, or change --socket-dir"));
  }
  if (::unlink(path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("removing stale socket ", path));
  }
  return absl::OkStatus();
}

}  // namespace ckptd
