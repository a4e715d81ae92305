// A node daemon with its gRPC server, its metrics, its coordinator and its end.
#ifndef CKPTD_DAEMON_SERVER_NODE_HOST_H_
#define CKPTD_DAEMON_SERVER_NODE_HOST_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/node/coordinator_client.h"
#include "daemon/node/node.h"
#include "daemon/server/environment.h"
#include "daemon/server/grpc_server.h"
#include "daemon/server/node_metrics.h"
#include "daemon/server/options.h"

namespace ckptd {

// Used by one thread. `environment` must outlive it.
class NodeHost {
 public:
  // Trainers can connect and are answered when it returns OK. `coordinator` need
  // not be reachable yet.
  static absl::StatusOr<std::unique_ptr<NodeHost>> Start(const ServerOptions& options,
                                                         const std::string& cluster_secret,
                                                         std::shared_ptr<grpc::Channel> coordinator,
                                                         Environment& environment);
  // As Stop().
  ~NodeHost();

  // Health checks are answered NOT_SERVING from now on.
  void SetNotServing() { server_->SetNotServing(); }
  // Refuses new saves and finishes those under way, until `deadline`.
  [[nodiscard]] absl::Status Drain(absl::Time deadline) { return node_->Drain(deadline); }
  // Waiting calls are answered, sessions and the server end. Idempotent.
  void Stop();

 private:
  NodeHost(const std::string& cluster_secret, std::shared_ptr<grpc::Channel> coordinator,
           Environment& environment);
  [[nodiscard]] absl::Status Open(const ServerOptions& options, Environment& environment);
  [[nodiscard]] absl::Status Listen(const ServerOptions& options);

  NodeMetrics metrics_;
  std::unique_ptr<CoordinatorClient> coordinator_;
  std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<GrpcServer> server_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_NODE_HOST_H_
