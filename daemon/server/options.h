// Everything that can be said to ckptd on its command line, checked.
#ifndef CKPTD_DAEMON_SERVER_OPTIONS_H_
#define CKPTD_DAEMON_SERVER_OPTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/runtime/log.h"
#include "daemon/server/address.h"
#include "daemon/server/machine.h"

namespace ckptd {

enum class Role { kStandalone, kNode, kCoordinator };

struct ServerOptions {
  Role role = Role::kStandalone;
  std::string state_dir;
  std::string socket_dir;                     // node: its two sockets; every role: its lock
  std::map<std::string, std::string> stores;  // name -> absolute folder
  std::optional<Address> metrics_listen;      // nullopt: off
  absl::Duration drain_timeout = absl::Minutes(2);
  LogFormat log_format = LogFormat::kText;
  std::string ready_file;           // empty: none
  std::string cluster_secret_file;  // empty: none

  // Node.
  std::string node_name;
  uint64_t arena_bytes = 0;
  uint64_t slab_bytes = 0;
  bool memory_restore = true;
  std::optional<Address> coordinator;

  // Coordinator.
  std::optional<Address> listen;
  absl::Duration orphan_age = absl::Hours(1);

  bool runs_node() const { return role != Role::kCoordinator; }
  bool runs_coordinator() const { return role != Role::kNode; }
  std::string node_grpc_socket() const;
  std::string node_handle_socket() const;
  std::string lock_file() const;
  std::string catalog_folder() const { return state_dir + "/catalog"; }
};

std::string_view RoleName(Role role);
std::optional<Role> ParseRole(std::string_view name);

// `arguments` are those after the role. INVALID_ARGUMENT lists all that is wrong,
// one problem a line.
absl::StatusOr<ServerOptions> ParseServerOptions(Role role,
                                                 const std::vector<std::string>& arguments,
                                                 const Machine& machine);
// The options of one role with this machine's defaults.
std::string ServerHelp(Role role, const Machine& machine);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_OPTIONS_H_
