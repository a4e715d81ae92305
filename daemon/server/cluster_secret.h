// The secret that nodes show to a coordinator on TCP, where the kernel says
// nothing about who calls.
#ifndef CKPTD_DAEMON_SERVER_CLUSTER_SECRET_H_
#define CKPTD_DAEMON_SERVER_CLUSTER_SECRET_H_

#include <string>

#include "absl/status/statusor.h"

namespace ckptd {

inline constexpr size_t kMinClusterSecretBytes = 32;

// The file's content without surrounding white space. FAILED_PRECONDITION if
// others than owner and group may read it, or if it is shorter than
// kMinClusterSecretBytes; NOT_FOUND if there is none.
absl::StatusOr<std::string> ReadClusterSecret(const std::string& path);

// As ReadClusterSecret; where there is no file, first makes one, mode 0600, of
// 256 random bits as hexadecimal digits.
absl::StatusOr<std::string> ReadOrMakeClusterSecret(const std::string& path);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_CLUSTER_SECRET_H_
