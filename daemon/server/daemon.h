// One ckptd process: its parts in the order in which they start and, the other
// way round, stop.
//
//   start                               stop (on SIGTERM or SIGINT)
//   1. folders are there and writable   1. health says NOT_SERVING, new saves are refused
//   2. the instance lock                2. what is staged becomes durable, until --drain-timeout
//   3. cluster secret                   3. the node answers its waiting calls and ends
//   4. metrics endpoint                 4. the coordinator does, and closes the catalog
//   5. coordinator                      5. metrics endpoint
//   6. node                             6. sockets removed, lock given back
//   7. ready line and ready file
#ifndef CKPTD_DAEMON_SERVER_DAEMON_H_
#define CKPTD_DAEMON_SERVER_DAEMON_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/server/environment.h"
#include "daemon/server/instance_lock.h"
#include "daemon/server/options.h"
#include "daemon/server/ready_file.h"

namespace ckptd {

class CoordinatorHost;
class MetricsEndpoint;
class NodeHost;

// Used by one thread. `environment` must outlive it.
class Daemon {
 public:
  // Answers calls when it returns OK.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(ServerOptions options,
                                                       Environment& environment);
  ~Daemon();

  ReadyReport report() const;
  // Steps 1 to 6 of the stop. DEADLINE_EXCEEDED if something staged was not
  // durable in time; everything is stopped all the same.
  [[nodiscard]] absl::Status Stop();

 private:
  Daemon(ServerOptions options, Environment& environment);
  [[nodiscard]] absl::Status Prepare();
  [[nodiscard]] absl::Status ResolveStores();
  [[nodiscard]] absl::Status StartMetrics();
  [[nodiscard]] absl::Status StartCoordinator();
  [[nodiscard]] absl::Status StartNode();
  [[nodiscard]] absl::Status Drain();

  ServerOptions options_;
  Environment& environment_;
  std::optional<InstanceLock> lock_;
  std::string cluster_secret_;
  // Destroyed in reverse: node, coordinator, metrics.
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<CoordinatorHost> coordinator_;
  std::unique_ptr<NodeHost> node_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_DAEMON_H_
