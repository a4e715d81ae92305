#include "client/ctl/admin_connection.h"

#include <chrono>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "ckptd/v1/handle.pb.h"
#include "ckptd/v1/node.grpc.pb.h"
#include "daemon/runtime/version.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "proto/rpc/handle_socket.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

constexpr absl::Duration kHelloTimeout = absl::Seconds(10);
constexpr std::chrono::seconds kCallTimeout{60};

absl::StatusOr<v1::Welcome> Greet(int socket) {
  v1::HandleRequest request;
  request.mutable_hello()->set_protocol_version(kProtocolVersion);
  request.mutable_hello()->set_client_version(absl::StrCat("ckptctl ", Version()));
  if (absl::Status status = SendHandlePacket(socket, request); !status.ok()) return status;
  v1::HandleReply reply;
  absl::StatusOr<UniqueFd> descriptor = ReceiveHandlePacket(socket, reply);
  if (!descriptor.ok()) return descriptor.status();
  if (reply.has_error()) return StatusFromWire(reply.error().code(), reply.error().message());
  if (!reply.has_welcome()) return absl::InternalError("the daemon answered no welcome to hello");
  return std::move(*reply.mutable_welcome());
}

absl::Status NoDaemon(const std::string& socket_dir, const absl::Status& why) {
  return absl::UnavailableError(
      absl::StrCat("no ckptd answers in ", socket_dir, ": ", why.message(),
                   "; start one with `ckptd standalone`, or name its folder with --socket-dir"));
}

class GrpcAdminConnection : public AdminConnection {
 public:
  GrpcAdminConnection(UniqueFd session, std::string token, std::shared_ptr<grpc::Channel> channel)
      : session_(std::move(session)),
        token_(std::move(token)),
        stub_(v1::Admin::NewStub(std::move(channel))) {}

  absl::StatusOr<v1::ListCheckpointsResponse> List(
      const v1::ListCheckpointsRequest& request) override {
    return Call(&v1::Admin::Stub::ListCheckpoints, request, v1::ListCheckpointsResponse());
  }
  absl::StatusOr<v1::ShowCheckpointResponse> Show(
      const v1::ShowCheckpointRequest& request) override {
    return Call(&v1::Admin::Stub::ShowCheckpoint, request, v1::ShowCheckpointResponse());
  }
  absl::StatusOr<v1::RemoveCheckpointsResponse> Remove(
      const v1::RemoveCheckpointsRequest& request) override {
    return Call(&v1::Admin::Stub::RemoveCheckpoints, request, v1::RemoveCheckpointsResponse());
  }
  absl::StatusOr<v1::SetPersistPausedResponse> SetPersistPaused(
      const v1::SetPersistPausedRequest& request) override {
    return Call(&v1::Admin::Stub::SetPersistPaused, request, v1::SetPersistPausedResponse());
  }
  absl::StatusOr<v1::GetNodeStatusResponse> Status(
      const v1::GetNodeStatusRequest& request) override {
    return Call(&v1::Admin::Stub::GetNodeStatus, request, v1::GetNodeStatusResponse());
  }

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (v1::Admin::Stub::*method)(grpc::ClientContext*,
                                                                        const Request&, Response*),
                                const Request& request, Response response) {
    grpc::ClientContext context;
    context.AddMetadata(kSessionMetadataKey, token_);
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    const grpc::Status status = ((*stub_).*method)(&context, request, &response);
    if (!status.ok()) return FromGrpcStatus(status);
    return response;
  }

  const UniqueFd session_;  // open as long as the session
  const std::string token_;
  const std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AdminConnection>> AdminConnection::Open(
    const std::string& socket_dir) {
  absl::StatusOr<UniqueFd> socket =
      ConnectHandleSocket(absl::StrCat(socket_dir, "/", kHandleSocketName), kHelloTimeout);
  if (!socket.ok()) return NoDaemon(socket_dir, socket.status());
  absl::StatusOr<v1::Welcome> welcome = Greet(socket->get());
  if (!welcome.ok()) return NoDaemon(socket_dir, welcome.status());

  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxNodeMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxAnswerMetadataBytes);
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(absl::StrCat("unix:", socket_dir, "/", kGrpcSocketName),
                                grpc::InsecureChannelCredentials(), arguments);
  return std::make_unique<GrpcAdminConnection>(*std::move(socket), welcome->session_token(),
                                               std::move(channel));
}

}  // namespace ckptd
