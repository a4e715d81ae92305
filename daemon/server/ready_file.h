// What a starter (a script, a test, a unit file) wants to know once the daemon
// answers: one JSON object.
//
//   {"pid":12,"role":"standalone","version":"0.1.0","node":"host1",
//    "grpc_socket":"/run/ckptd/node.grpc","handle_socket":"/run/ckptd/node.handles",
//    "coordinator_address":"127.0.0.1:9470","metrics_port":9464}
//
// Keys of parts that the role doesn't have are left out.
#ifndef CKPTD_DAEMON_SERVER_READY_FILE_H_
#define CKPTD_DAEMON_SERVER_READY_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ckptd {

struct ReadyReport {
  int64_t process_id = 0;
  std::string role;
  std::string version;
  std::string node;                 // node, standalone
  std::string grpc_socket;          // node, standalone
  std::string handle_socket;        // node, standalone
  std::string coordinator_address;  // coordinator: where it listens
  int metrics_port = 0;             // 0: off
};

std::string ReadyReportJson(const ReadyReport& report);

// Readers see no file, or all of it.
[[nodiscard]] absl::Status WriteReadyFile(const std::string& path, const ReadyReport& report);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_READY_FILE_H_
