#include "daemon/server/grpc_server.h"

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

// A coordinator that comes back after an hour is found again within this; gRPC's own
// pauses between tries grow to two minutes.
constexpr int kLongestReconnectPauseMilliseconds = 2'000;

void SetLimits(grpc::ServerBuilder& builder, int max_message_bytes) {
  builder.SetMaxReceiveMessageSize(max_message_bytes);
  builder.SetMaxSendMessageSize(max_message_bytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveIntervalMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMinimumIntervalMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Two daemons on one port would each get some of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

grpc::ChannelArguments ChannelLimits(int max_message_bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_message_bytes);
  arguments.SetMaxSendMessageSize(max_message_bytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxAnswerMetadataBytes);
  return arguments;
}

std::chrono::system_clock::time_point After(absl::Duration patience) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience);
}

}  // namespace

void EnableHealthAndReflection() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const Config& config) {
  grpc::ServerBuilder builder;
  SetLimits(builder, config.max_message_bytes);
  int port = 0;
  if (config.listens) {
    builder.AddListeningPort(config.listen.ToString(), grpc::InsecureServerCredentials(), &port);
  }
  for (grpc::Service* service : config.services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || (config.listens && port == 0)) {
    return absl::UnavailableError(absl::StrCat("listening on ", config.listen.ToString(),
                                               ": the address can't be had; another process may "
                                               "use it. Choose another one"));
  }
  Address address = config.listen;
  if (config.listens && !address.is_unix()) address.port = static_cast<uint16_t>(port);
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(server), std::move(address)));
}

GrpcServer::GrpcServer(std::unique_ptr<grpc::Server> server, Address address)
    : server_(std::move(server)), address_(std::move(address)) {}

GrpcServer::~GrpcServer() { Stop(absl::ZeroDuration()); }

std::shared_ptr<grpc::Channel> GrpcServer::InProcessChannel(int max_message_bytes) {
  return server_->InProcessChannel(ChannelLimits(max_message_bytes));
}

void GrpcServer::SetNotServing() {
  if (auto* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
}

void GrpcServer::Stop(absl::Duration patience) {
  server_->Shutdown(After(patience));
  server_->Wait();
}

std::shared_ptr<grpc::Channel> ConnectChannel(const Address& address, int max_message_bytes) {
  grpc::ChannelArguments arguments = ChannelLimits(max_message_bytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveIntervalMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestReconnectPauseMilliseconds);
  return grpc::CreateCustomChannel(address.ToString(), grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace ckptd
