// Where a server listens or a client connects: a Unix socket or a TCP port.
#ifndef CKPTD_DAEMON_SERVER_ADDRESS_H_
#define CKPTD_DAEMON_SERVER_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptd {

struct Address {
  std::string unix_path;  // absolute; empty: TCP
  std::string host;       // a name or an IP address, an IPv6 one without brackets
  uint16_t port = 0;

  bool is_unix() const { return !unix_path.empty(); }
  // Reachable from this machine only: a Unix socket, 127.0.0.0/8, ::1, localhost.
  bool is_loopback() const;
  // As gRPC and people write it: "unix:/run/x", "host:9470", "[::1]:9470".
  std::string ToString() const;
};

// "unix:/path", "HOST:PORT", "[IPV6]:PORT". INVALID_ARGUMENT with what is wrong.
absl::StatusOr<Address> ParseAddress(std::string_view text);

// Absolute and at most kMaxUnixSocketPathBytes.
[[nodiscard]] absl::Status CheckSocketPath(std::string_view path);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_ADDRESS_H_
