// One daemon per socket folder: a lock file, held by flock as long as the process
// lives, so that a dead daemon's leftovers are told from a living one's.
#ifndef CKPTD_DAEMON_SERVER_INSTANCE_LOCK_H_
#define CKPTD_DAEMON_SERVER_INSTANCE_LOCK_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

// Held from Acquire to destruction. The file stays: removing it would let two
// daemons lock two files of one name.
class InstanceLock {
 public:
  // ALREADY_EXISTS naming the process id of the daemon that holds it.
  static absl::StatusOr<InstanceLock> Acquire(const std::string& path);

 private:
  explicit InstanceLock(UniqueFd file) : file_(std::move(file)) {}
  UniqueFd file_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_INSTANCE_LOCK_H_
