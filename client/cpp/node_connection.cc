#include "client/cpp/node_connection.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <sys/socket.h>

#include <list>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "ckptd/v1/handle.pb.h"
#include "ckptd/v1/node.grpc.pb.h"
#include "client/cpp/fork_guard.h"
#include "proto/rpc/handle_socket.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

constexpr absl::Duration kHandleSocketTimeout = absl::Seconds(10);
constexpr absl::Duration kEndLoadTimeout = absl::Seconds(30);
constexpr char kClientVersion[] = "0.1.0";

absl::Status ExplainNoDaemon(const absl::Status& status, const std::string& socket_dir) {
  if (!absl::IsNotFound(status) && !absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(
      absl::StrCat("no ckptd daemon listens in ", socket_dir, " (", status.message(),
                   "); start one with `ckptd standalone --socket-dir ", socket_dir,
                   "`, or name the folder of a running one by socket_dir= or CKPTD_SOCKET_DIR"));
}

absl::StatusOr<v1::Welcome> SayHello(int socket) {
  v1::HandleRequest request;
  request.mutable_hello()->set_protocol_version(kProtocolVersion);
  request.mutable_hello()->set_client_version(kClientVersion);
  if (absl::Status sent = SendHandlePacket(socket, request); !sent.ok()) return sent;
  v1::HandleReply reply;
  const absl::StatusOr<UniqueFd> received = ReceiveHandlePacket(socket, reply);
  if (!received.ok()) return received.status();
  if (reply.has_error()) {
    return Annotate(StatusFromWire(reply.error().code(), reply.error().message()),
                    "opening a session with the node daemon");
  }
  if (!reply.has_welcome()) return absl::InternalError("the node daemon did not answer Hello");
  return std::move(*reply.mutable_welcome());
}

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& socket_dir) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxSendMessageSize(kMaxTrainerMessageBytes);
  arguments.SetMaxReceiveMessageSize(kMaxTrainerMessageBytes);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxAnswerMetadataBytes);
  // A connection of its own, with no back-off left over from an earlier daemon.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket_dir, "/", kGrpcSocketName),
                                   grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

// A BeginLoad under way. Its answer brings the load's id, without which nobody could end
// it: so it is not cancelled, but left behind when the wait for it is interrupted, and the load
// ended when the answer comes.
struct NodeConnection::PendingBeginLoad {
  grpc::ClientContext context;
  v1::BeginLoadRequest request;
  v1::BeginLoadResponse response;
  grpc::ClientContext end_context;
  v1::EndLoadRequest end_request;
  v1::EndLoadResponse end_response;
  absl::Mutex mutex;
  bool answered ABSL_GUARDED_BY(mutex) = false;
  bool interrupted ABSL_GUARDED_BY(mutex) = false;
  bool over ABSL_GUARDED_BY(mutex) = false;  // no callback comes any more
  grpc::Status status ABSL_GUARDED_BY(mutex);
};

// Callbacks own nothing: the last owner of a channel stops gRPC's threads and waits for them,
// which one of those threads can't.
struct NodeConnection::Rpc {
  Rpc(const std::shared_ptr<grpc::Channel>& channel, std::string session_token,
      std::shared_ptr<Interrupt> interrupter)
      : node(v1::Node::NewStub(channel)),
        admin(v1::Admin::NewStub(channel)),
        token(std::move(session_token)),
        interrupt(std::move(interrupter)) {}

  // The session's token and a deadline.
  void Prepare(grpc::ClientContext& context, absl::Duration timeout) const {
    context.AddMetadata(kSessionMetadataKey, token);
    context.set_deadline(
        absl::ToChronoTime(absl::Now() + timeout + absl::Seconds(kDeadlineSlackSeconds)));
  }

  // One call of `method`, whatever the interrupt says.
  template <typename Stub, typename Request, typename Response>
  absl::Status CallThrough(Stub& stub,
                           grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                        Response*),
                           const Request& request, Response* response, absl::Duration timeout) {
    if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
    grpc::ClientContext context;
    Prepare(context, timeout);
    return FromGrpcStatus((stub.*method)(&context, request, response));
  }

  // One call of `method`, cancelled by the interrupt.
  template <typename Stub, typename Request, typename Response>
  absl::Status Call(Stub& stub,
                    grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response* response, absl::Duration timeout) {
    if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
    grpc::ClientContext context;
    Prepare(context, timeout);
    const Interrupt::Wait wait(*interrupt, [&context] { context.TryCancel(); });
    return FromGrpcStatus((stub.*method)(&context, request, response));
  }

  // Cancels what was left behind and waits for its end.
  ~Rpc();
  absl::Status BeginLoad(const v1::BeginLoadRequest& request, v1::BeginLoadResponse* response,
                         absl::Duration timeout);
  void LoadBegun(PendingBeginLoad& call, grpc::Status status);
  void LeaveBehind(std::unique_ptr<PendingBeginLoad> call);

  const std::unique_ptr<v1::Node::Stub> node;
  const std::unique_ptr<v1::Admin::Stub> admin;
  const std::string token;
  const std::shared_ptr<Interrupt> interrupt;
  absl::Mutex mutex;
  std::list<std::unique_ptr<PendingBeginLoad>> left_behind ABSL_GUARDED_BY(mutex);
};

NodeConnection::Rpc::~Rpc() {
  if (InForkedChild()) {  // without gRPC's threads
    for (auto& call : left_behind) (void)call.release();
    return;
  }
  for (auto& call : left_behind) {
    call->context.TryCancel();
    call->end_context.TryCancel();
    absl::MutexLock call_lock(&call->mutex);
    call->mutex.Await(absl::Condition(&call->over));
  }
}

absl::Status NodeConnection::Rpc::BeginLoad(const v1::BeginLoadRequest& request,
                                            v1::BeginLoadResponse* response,
                                            absl::Duration timeout) {
  if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
  auto owned = std::make_unique<PendingBeginLoad>();
  PendingBeginLoad* const call = owned.get();
  call->request = request;
  Prepare(call->context, timeout);
  node->async()->BeginLoad(
      &call->context, &call->request, &call->response,
      [this, call](grpc::Status status) { LoadBegun(*call, std::move(status)); });
  const Interrupt::Wait wait(*interrupt, [call] {
    absl::MutexLock lock(&call->mutex);
    call->interrupted = !call->answered;
  });
  {
    absl::MutexLock lock(&call->mutex);
    call->mutex.Await(absl::Condition(
        +[](PendingBeginLoad* c)
             ABSL_EXCLUSIVE_LOCKS_REQUIRED(c->mutex) { return c->answered || c->interrupted; },
        call));
    if (!call->interrupted) {
      *response = std::move(call->response);
      return FromGrpcStatus(call->status);
    }
  }
  LeaveBehind(std::move(owned));
  return absl::CancelledError("the load was interrupted");
}

void NodeConnection::Rpc::LoadBegun(PendingBeginLoad& call, grpc::Status status) {
  absl::MutexLock lock(&call.mutex);
  call.status = std::move(status);
  call.answered = true;
  if (!call.interrupted || !call.status.ok()) {
    call.over = true;
    return;
  }
  call.end_request.set_load_id(call.response.load_id());
  call.end_request.set_error("the load was interrupted");
  Prepare(call.end_context, kEndLoadTimeout);
  node->async()->EndLoad(&call.end_context, &call.end_request, &call.end_response,
                         [&call](const grpc::Status&) {
                           // Nothing to do about an error: the load also ends with the session.
                           absl::MutexLock end_lock(&call.mutex);
                           call.over = true;
                         });
}

void NodeConnection::Rpc::LeaveBehind(std::unique_ptr<PendingBeginLoad> call) {
  absl::MutexLock lock(&mutex);
  left_behind.remove_if([](const std::unique_ptr<PendingBeginLoad>& earlier) {
    absl::MutexLock call_lock(&earlier->mutex);
    return earlier->over;
  });
  left_behind.push_back(std::move(call));
}

absl::StatusOr<std::shared_ptr<NodeConnection>> NodeConnection::Open(
    const std::string& socket_dir, std::shared_ptr<Interrupt> interrupt) {
  if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
  MarkForksFromHere();
  absl::StatusOr<UniqueFd> handles =
      ConnectHandleSocket(absl::StrCat(socket_dir, "/", kHandleSocketName), kHandleSocketTimeout);
  if (!handles.ok()) return ExplainNoDaemon(handles.status(), socket_dir);
  absl::StatusOr<v1::Welcome> welcome = SayHello(handles->get());
  if (!welcome.ok()) return ExplainNoDaemon(welcome.status(), socket_dir);
  return std::shared_ptr<NodeConnection>(
      new NodeConnection(*std::move(handles), welcome->instance_id(), welcome->node(),
                         std::make_shared<Rpc>(OpenChannel(socket_dir), welcome->session_token(),
                                               std::move(interrupt))));
}

NodeConnection::NodeConnection(UniqueFd handles, std::string instance_id, std::string node,
                               std::shared_ptr<Rpc> rpc)
    : instance_id_(std::move(instance_id)),
      node_(std::move(node)),
      rpc_(std::move(rpc)),
      handles_(std::move(handles)) {}

NodeConnection::~NodeConnection() {
  // A forked child may hold the socket open: closing our copy would end nothing.
  if (!InForkedChild()) ::shutdown(handles_.get(), SHUT_RDWR);
}

absl::StatusOr<std::shared_ptr<const SlabMapping>> NodeConnection::Slab(uint64_t slab_id) {
  absl::MutexLock lock(&handles_mutex_);
  if (const auto known = slabs_.find(slab_id); known != slabs_.end()) return known->second;
  v1::HandleRequest request;
  request.mutable_get_slab()->set_slab_id(slab_id);
  if (absl::Status sent = SendHandlePacket(handles_.get(), request); !sent.ok()) return sent;
  v1::HandleReply reply;
  const absl::StatusOr<UniqueFd> descriptor = ReceiveHandlePacket(handles_.get(), reply);
  if (!descriptor.ok()) return descriptor.status();
  const std::string doing = absl::StrCat("fetching slab ", slab_id, " of node ", node_);
  if (reply.has_error()) {
    return Annotate(StatusFromWire(reply.error().code(), reply.error().message()), doing);
  }
  if (!reply.has_slab() || reply.slab().slab_id() != slab_id || !descriptor->valid()) {
    return absl::InternalError(absl::StrCat(doing, ": the daemon answered something else"));
  }
  absl::StatusOr<std::shared_ptr<const SlabMapping>> mapping =
      SlabMapping::Map(descriptor->get(), reply.slab().size_bytes());
  if (!mapping.ok()) return Annotate(mapping.status(), doing);
  slabs_.emplace(slab_id, *mapping);
  return mapping;
}

absl::Status NodeConnection::Join(const v1::JoinRequest& request, v1::JoinResponse* response,
                                  absl::Duration timeout) {
  return rpc_->Call(*rpc_->node, &v1::Node::Stub::Join, request, response, timeout);
}

absl::Status NodeConnection::BeginSave(const v1::BeginSaveRequest& request,
                                       v1::BeginSaveResponse* response, absl::Duration timeout) {
  return rpc_->Call(*rpc_->node, &v1::Node::Stub::BeginSave, request, response, timeout);
}

absl::Status NodeConnection::ExtendSnapshot(const v1::ExtendSnapshotRequest& request,
                                            v1::ExtendSnapshotResponse* response,
                                            absl::Duration timeout, OnInterrupt on_interrupt) {
  const auto method = &v1::Node::Stub::ExtendSnapshot;
  return on_interrupt == OnInterrupt::kGiveUp
             ? rpc_->Call(*rpc_->node, method, request, response, timeout)
             : rpc_->CallThrough(*rpc_->node, method, request, response, timeout);
}

absl::Status NodeConnection::FinishSnapshot(const v1::FinishSnapshotRequest& request,
                                            absl::Duration timeout) {
  v1::FinishSnapshotResponse response;
  return rpc_->CallThrough(*rpc_->node, &v1::Node::Stub::FinishSnapshot, request, &response,
                           timeout);
}

absl::Status NodeConnection::WaitSave(const v1::WaitSaveRequest& request, v1::SaveStatus* response,
                                      absl::Duration timeout) {
  return rpc_->CallThrough(*rpc_->node, &v1::Node::Stub::WaitSave, request, response, timeout);
}

absl::Status NodeConnection::BeginLoad(const v1::BeginLoadRequest& request,
                                       v1::BeginLoadResponse* response, absl::Duration timeout) {
  return rpc_->BeginLoad(request, response, timeout);
}

absl::Status NodeConnection::NextWindows(const v1::NextWindowsRequest& request,
                                         v1::NextWindowsResponse* response,
                                         absl::Duration timeout) {
  return rpc_->Call(*rpc_->node, &v1::Node::Stub::NextWindows, request, response, timeout);
}

absl::Status NodeConnection::EndLoad(const v1::EndLoadRequest& request, absl::Duration timeout) {
  v1::EndLoadResponse response;
  return rpc_->CallThrough(*rpc_->node, &v1::Node::Stub::EndLoad, request, &response, timeout);
}

absl::Status NodeConnection::ListCheckpoints(const v1::ListCheckpointsRequest& request,
                                             v1::ListCheckpointsResponse* response,
                                             absl::Duration timeout) {
  return rpc_->Call(*rpc_->admin, &v1::Admin::Stub::ListCheckpoints, request, response, timeout);
}

absl::Status NodeConnection::ShowCheckpoint(const v1::ShowCheckpointRequest& request,
                                            v1::ShowCheckpointResponse* response,
                                            absl::Duration timeout) {
  return rpc_->Call(*rpc_->admin, &v1::Admin::Stub::ShowCheckpoint, request, response, timeout);
}

absl::Status NodeConnection::RemoveCheckpoints(const v1::RemoveCheckpointsRequest& request,
                                               v1::RemoveCheckpointsResponse* response,
                                               absl::Duration timeout) {
  return rpc_->Call(*rpc_->admin, &v1::Admin::Stub::RemoveCheckpoints, request, response, timeout);
}

}  // namespace ckptd
