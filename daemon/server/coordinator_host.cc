#include "daemon/server/coordinator_host.h"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/runtime/quantity.h"
#include "daemon/runtime/version.h"
#include "daemon/server/start_checks.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

// Nodes run as the same user; nobody else may speak for one.
constexpr mode_t kCoordinatorSocketMode = 0600;

CoordinatorOptions ToCoordinatorOptions(const ServerOptions& options) {
  CoordinatorOptions result;
  result.catalog_path = options.catalog_folder();
  result.stores = options.stores;
  result.software_version = Version();
  result.failed_attempt_age = options.orphan_age;
  return result;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorHost>> CoordinatorHost::Start(
    const ServerOptions& options, const std::string& cluster_secret, Environment& environment) {
  std::unique_ptr<CoordinatorHost> host(new CoordinatorHost(cluster_secret, environment));
  if (absl::Status status = host->Open(options, environment); !status.ok()) return status;
  if (absl::Status status = host->Listen(options); !status.ok()) return status;
  return host;
}

absl::Status CoordinatorHost::Open(const ServerOptions& options, Environment& environment) {
  absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
      Coordinator::Create(ToCoordinatorOptions(options), environment.file_system, environment.clock,
                          environment.alarms, metrics_);
  if (!coordinator.ok()) return coordinator.status();
  coordinator_ = *std::move(coordinator);
  service_ = std::make_unique<CoordinatorService>(*coordinator_, cluster_secret_);
  return absl::OkStatus();
}

absl::Status CoordinatorHost::Listen(const ServerOptions& options) {
  GrpcServer::Config config;
  config.listens = options.listen.has_value();
  config.max_message_bytes = kMaxNodeMessageBytes;
  config.services = {service_.get()};
  if (config.listens) config.listen = *options.listen;
  const bool on_socket = config.listens && config.listen.is_unix();
  if (on_socket) {
    if (absl::Status status = RemoveStaleSocket(config.listen.unix_path); !status.ok()) {
      return status;
    }
  }
  absl::StatusOr<std::unique_ptr<GrpcServer>> server = GrpcServer::Start(config);
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  if (on_socket && ::chmod(config.listen.unix_path.c_str(), kCoordinatorSocketMode) != 0) {
    return absl::ErrnoToStatus(errno,
                               absl::StrCat("setting the mode of ", config.listen.unix_path));
  }
  return absl::OkStatus();
}

CoordinatorHost::~CoordinatorHost() { Stop(); }

std::shared_ptr<grpc::Channel> CoordinatorHost::InProcessChannel() {
  return server_->InProcessChannel(kMaxNodeMessageBytes);
}

void CoordinatorHost::BeginDrain() {
  server_->SetNotServing();
  coordinator_->Drain();
}

absl::Status CoordinatorHost::AwaitSaves(absl::Duration limit) {
  if (coordinator_->AwaitSavesFinished(limit)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("saves are still under way after --drain-timeout, ", DurationText(limit),
                   "; nodes keep what is staged and finish it with the next coordinator"));
}

void CoordinatorHost::Stop() {
  if (coordinator_ != nullptr) coordinator_->Stop();
  if (server_ != nullptr) server_->Stop(kStopPatience);
}

}  // namespace ckptd
