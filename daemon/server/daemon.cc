#include "daemon/server/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/runtime/version.h"
#include "daemon/server/cluster_secret.h"
#include "daemon/server/coordinator_host.h"
#include "daemon/server/grpc_server.h"
#include "daemon/server/metrics_endpoint.h"
#include "daemon/server/node_host.h"
#include "daemon/server/start_checks.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"
#include "storage/file_system/posix_file_system.h"

namespace ckptd {

Daemon::Daemon(ServerOptions options, Environment& environment)
    : options_(std::move(options)), environment_(environment) {}

Daemon::~Daemon() = default;

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(ServerOptions options,
                                                      Environment& environment) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options), environment));
  if (absl::Status status = daemon->Prepare(); !status.ok()) return status;
  if (absl::Status status = daemon->StartMetrics(); !status.ok()) return status;
  if (absl::Status status = daemon->StartCoordinator(); !status.ok()) return status;
  if (absl::Status status = daemon->StartNode(); !status.ok()) return status;
  return daemon;
}

absl::Status Daemon::Prepare() {
  if (absl::Status status = PrepareFolders(options_); !status.ok()) return status;
  if (absl::Status status = ResolveStores(); !status.ok()) return status;
  absl::StatusOr<InstanceLock> lock = InstanceLock::Acquire(options_.lock_file());
  if (!lock.ok()) return lock.status();
  lock_.emplace(*std::move(lock));

  if (options_.cluster_secret_file.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> secret = options_.runs_coordinator()
                                           ? ReadOrMakeClusterSecret(options_.cluster_secret_file)
                                           : ReadClusterSecret(options_.cluster_secret_file);
  if (!secret.ok()) return secret.status();
  cluster_secret_ = *std::move(secret);
  return absl::OkStatus();
}

absl::Status Daemon::ResolveStores() {
  // Links above a store are the administrator's; below it none is followed.
  for (auto& [name, path] : options_.stores) {
    absl::StatusOr<std::string> canonical = CanonicalDirectory(path);
    if (!canonical.ok()) return Annotate(canonical.status(), absl::StrCat("store ", name));
    path = *std::move(canonical);
  }
  return absl::OkStatus();
}

absl::Status Daemon::StartMetrics() {
  if (!options_.metrics_listen.has_value()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<MetricsEndpoint>> endpoint =
      MetricsEndpoint::Start(*options_.metrics_listen, environment_.registry);
  if (!endpoint.ok()) return endpoint.status();
  metrics_ = *std::move(endpoint);
  return absl::OkStatus();
}

absl::Status Daemon::StartCoordinator() {
  if (!options_.runs_coordinator()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<CoordinatorHost>> host =
      CoordinatorHost::Start(options_, cluster_secret_, environment_);
  if (!host.ok()) return Annotate(host.status(), "starting the coordinator");
  coordinator_ = *std::move(host);
  return absl::OkStatus();
}

absl::Status Daemon::StartNode() {
  if (!options_.runs_node()) return absl::OkStatus();
  std::shared_ptr<grpc::Channel> channel =
      coordinator_ != nullptr ? coordinator_->InProcessChannel()
                              : ConnectChannel(*options_.coordinator, kMaxNodeMessageBytes);
  absl::StatusOr<std::unique_ptr<NodeHost>> host =
      NodeHost::Start(options_, cluster_secret_, std::move(channel), environment_);
  if (!host.ok()) return Annotate(host.status(), "starting the node");
  node_ = *std::move(host);
  return absl::OkStatus();
}

ReadyReport Daemon::report() const {
  ReadyReport report;
  report.process_id = ::getpid();
  report.role = RoleName(options_.role);
  report.version = Version();
  if (node_ != nullptr) {
    report.node = options_.node_name;
    report.grpc_socket = options_.node_grpc_socket();
    report.handle_socket = options_.node_handle_socket();
  }
  if (coordinator_ != nullptr && options_.listen.has_value()) {
    report.coordinator_address = coordinator_->address().ToString();
  }
  if (metrics_ != nullptr) report.metrics_port = metrics_->port();
  return report;
}

absl::Status Daemon::Drain() {
  const absl::Time deadline = environment_.clock.Now() + options_.drain_timeout;
  absl::Status drained = absl::OkStatus();
  if (node_ != nullptr) {
    // Needs the coordinator: for plans of saves that have begun, and for commits.
    node_->SetNotServing();
    drained = node_->Drain(deadline);
  }
  if (coordinator_ != nullptr) {
    coordinator_->BeginDrain();
    const absl::Duration left = std::max(deadline - environment_.clock.Now(), absl::ZeroDuration());
    drained.Update(coordinator_->AwaitSaves(left));
  }
  return drained;
}

absl::Status Daemon::Stop() {
  absl::Status drained = Drain();
  node_.reset();
  coordinator_.reset();
  metrics_.reset();
  lock_.reset();
  return drained;
}

}  // namespace ckptd
