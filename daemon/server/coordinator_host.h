// A coordinator with its gRPC server, its metrics and its end.
#ifndef CKPTD_DAEMON_SERVER_COORDINATOR_HOST_H_
#define CKPTD_DAEMON_SERVER_COORDINATOR_HOST_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/coordinator/coordinator.h"
#include "daemon/coordinator/coordinator_service.h"
#include "daemon/server/coordinator_metrics.h"
#include "daemon/server/environment.h"
#include "daemon/server/grpc_server.h"
#include "daemon/server/options.h"

namespace ckptd {

// Used by one thread. `environment` must outlive it.
class CoordinatorHost {
 public:
  // Answers calls when it returns OK: on options.listen, or in-process only where
  // there is none.
  static absl::StatusOr<std::unique_ptr<CoordinatorHost>> Start(const ServerOptions& options,
                                                                const std::string& cluster_secret,
                                                                Environment& environment);
  // As Stop().
  ~CoordinatorHost();

  const Address& address() const { return server_->address(); }
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // NOT_SERVING; new worlds, plans and loads are refused.
  void BeginDrain();
  // DEADLINE_EXCEEDED if saves are still under way after `limit`.
  [[nodiscard]] absl::Status AwaitSaves(absl::Duration limit);
  // Waiting calls are answered, the server ends, the catalog is closed. Idempotent.
  void Stop();

 private:
  CoordinatorHost(const std::string& cluster_secret, Environment& environment)
      : cluster_secret_(cluster_secret), metrics_(*environment.registry, environment.log) {}
  [[nodiscard]] absl::Status Open(const ServerOptions& options, Environment& environment);
  [[nodiscard]] absl::Status Listen(const ServerOptions& options);

  const std::string cluster_secret_;
  CoordinatorMetrics metrics_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<CoordinatorService> service_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_COORDINATOR_HOST_H_
