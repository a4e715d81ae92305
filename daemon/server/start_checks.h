// What must hold on the machine before a daemon starts, found out (and made,
// where it is ours to make) before anything listens.
#ifndef CKPTD_DAEMON_SERVER_START_CHECKS_H_
#define CKPTD_DAEMON_SERVER_START_CHECKS_H_

#include <string>

#include "absl/status/status.h"
#include "daemon/server/options.h"

namespace ckptd {

// Makes the socket, state and store folders where they are missing and checks
// that files can be created in them. The error lists every folder that fails.
// FAILED_PRECONDITION.
[[nodiscard]] absl::Status PrepareFolders(const ServerOptions& options);

// Removes the socket that a dead daemon left at `path`; OK if nothing is there.
// Only while the instance lock is held. FAILED_PRECONDITION if something else
// than a socket has that name.
[[nodiscard]] absl::Status RemoveStaleSocket(const std::string& path);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_START_CHECKS_H_
