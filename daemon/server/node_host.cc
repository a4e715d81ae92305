#include "daemon/server/node_host.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/grpc_coordinator_client.h"
#include "daemon/node/node_service.h"
#include "daemon/runtime/version.h"
#include "daemon/server/start_checks.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

// Every user's trainers connect; the session token says who calls.
constexpr mode_t kTrainerSocketMode = 0666;

NodeOptions ToNodeOptions(const ServerOptions& options) {
  NodeOptions result;
  result.node_name = options.node_name;
  result.socket_directory = options.socket_dir;
  result.version = Version();
  result.stores = options.stores;
  result.arena_bytes = options.arena_bytes;
  result.slab_bytes = options.slab_bytes;
  result.keep_images = options.memory_restore;
  return result;
}

}  // namespace

NodeHost::NodeHost(const std::string& cluster_secret, std::shared_ptr<grpc::Channel> coordinator,
                   Environment& environment)
    : metrics_(*environment.registry, environment.log),
      coordinator_(MakeGrpcCoordinatorClient(std::move(coordinator), cluster_secret,
                                             environment.clock, environment.alarms, metrics_)) {}

absl::StatusOr<std::unique_ptr<NodeHost>> NodeHost::Start(
    const ServerOptions& options, const std::string& cluster_secret,
    std::shared_ptr<grpc::Channel> coordinator, Environment& environment) {
  std::unique_ptr<NodeHost> host(new NodeHost(cluster_secret, std::move(coordinator), environment));
  for (const std::string& path : {options.node_grpc_socket(), options.node_handle_socket()}) {
    if (absl::Status status = RemoveStaleSocket(path); !status.ok()) return status;
  }
  if (absl::Status status = host->Open(options, environment); !status.ok()) return status;
  if (absl::Status status = host->Listen(options); !status.ok()) return status;
  return host;
}

absl::Status NodeHost::Open(const ServerOptions& options, Environment& environment) {
  absl::StatusOr<std::unique_ptr<Node>> node =
      Node::Create(ToNodeOptions(options), NodeEnvironment{.file_system = environment.file_system,
                                                           .clock = environment.clock,
                                                           .alarms = environment.alarms,
                                                           .coordinator = *coordinator_,
                                                           .probe = metrics_});
  if (!node.ok()) return node.status();
  node_ = *std::move(node);
  services_ = MakeNodeServices(*node_);
  return absl::OkStatus();
}

absl::Status NodeHost::Listen(const ServerOptions& options) {
  const std::string path = options.node_grpc_socket();
  GrpcServer::Config config;
  config.listen = Address{.unix_path = path};
  config.max_message_bytes = kMaxTrainerMessageBytes;
  for (const auto& service : services_) config.services.push_back(service.get());
  absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(config);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  if (::chmod(path.c_str(), kTrainerSocketMode) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("setting the mode of ", path));
  }
  return absl::OkStatus();
}

NodeHost::~NodeHost() { Stop(); }

void NodeHost::Stop() {
  if (node_ != nullptr) node_->Stop();
  if (server_ != nullptr) server_->Stop(kStopPatience);
}

}  // namespace ckptd
