#include "daemon/node/node_service.h"

#include <string>
#include <utility>

#include "ckptd/v1/node.grpc.pb.h"
#include "daemon/node/call_budget.h"
#include "daemon/runtime/unary_call.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

std::string TokenOf(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  auto found = metadata.find(kSessionMetadataKey);
  return found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
}

// Authenticates, keeps within the budget, then hands request and answer to `method`.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* Serve(Node& node, CallBudget& budget,
                                void (Node::*method)(SessionPtr, Request, Done<Response>),
                                grpc::CallbackServerContext* context, const Request* request,
                                Response* response) {
  return ServeUnary<Response>(response, [&](Done<Response> done) {
    absl::StatusOr<SessionPtr> session = node.Authenticate(TokenOf(*context));
    if (!session.ok()) return std::move(done)(session.status());
    absl::StatusOr<CallBudget::Share> share = budget.Take(*session, request->ByteSizeLong());
    if (!share.ok()) return std::move(done)(share.status());
    (node.*method)(
        *std::move(session), *request,
        [done = std::move(done), share = *std::move(share)](
            absl::StatusOr<Response> result) mutable { std::move(done)(std::move(result)); });
  });
}

class NodeService : public v1::Node::CallbackService {
 public:
  NodeService(ckptd::Node& node, std::shared_ptr<CallBudget> budget)
      : node_(node), budget_(std::move(budget)) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::Join, context, request, response);
  }
  grpc::ServerUnaryReactor* BeginSave(grpc::CallbackServerContext* context,
                                      const v1::BeginSaveRequest* request,
                                      v1::BeginSaveResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::BeginSave, context, request, response);
  }
  grpc::ServerUnaryReactor* ExtendSnapshot(grpc::CallbackServerContext* context,
                                           const v1::ExtendSnapshotRequest* request,
                                           v1::ExtendSnapshotResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::ExtendSnapshot, context, request, response);
  }
  grpc::ServerUnaryReactor* FinishSnapshot(grpc::CallbackServerContext* context,
                                           const v1::FinishSnapshotRequest* request,
                                           v1::FinishSnapshotResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::FinishSnapshot, context, request, response);
  }
  grpc::ServerUnaryReactor* WaitSave(grpc::CallbackServerContext* context,
                                     const v1::WaitSaveRequest* request,
                                     v1::SaveStatus* response) override {
    return Serve(node_, *budget_, &ckptd::Node::WaitSave, context, request, response);
  }
  grpc::ServerUnaryReactor* BeginLoad(grpc::CallbackServerContext* context,
                                      const v1::BeginLoadRequest* request,
                                      v1::BeginLoadResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::BeginLoad, context, request, response);
  }
  grpc::ServerUnaryReactor* NextWindows(grpc::CallbackServerContext* context,
                                        const v1::NextWindowsRequest* request,
                                        v1::NextWindowsResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::NextWindows, context, request, response);
  }
  grpc::ServerUnaryReactor* EndLoad(grpc::CallbackServerContext* context,
                                    const v1::EndLoadRequest* request,
                                    v1::EndLoadResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::EndLoad, context, request, response);
  }

 private:
  ckptd::Node& node_;
  const std::shared_ptr<CallBudget> budget_;
};

class AdminService : public v1::Admin::CallbackService {
 public:
  AdminService(ckptd::Node& node, std::shared_ptr<CallBudget> budget)
      : node_(node), budget_(std::move(budget)) {}

  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::ListCheckpoints, context, request, response);
  }
  grpc::ServerUnaryReactor* ShowCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::ShowCheckpointRequest* request,
                                           v1::ShowCheckpointResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::ShowCheckpoint, context, request, response);
  }
  grpc::ServerUnaryReactor* RemoveCheckpoints(grpc::CallbackServerContext* context,
                                              const v1::RemoveCheckpointsRequest* request,
                                              v1::RemoveCheckpointsResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::RemoveCheckpoints, context, request, response);
  }
  grpc::ServerUnaryReactor* SetPersistPaused(grpc::CallbackServerContext* context,
                                             const v1::SetPersistPausedRequest* request,
                                             v1::SetPersistPausedResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::SetPersistPaused, context, request, response);
  }
  grpc::ServerUnaryReactor* GetNodeStatus(grpc::CallbackServerContext* context,
                                          const v1::GetNodeStatusRequest* request,
                                          v1::GetNodeStatusResponse* response) override {
    return Serve(node_, *budget_, &ckptd::Node::GetNodeStatus, context, request, response);
  }

 private:
  ckptd::Node& node_;
  const std::shared_ptr<CallBudget> budget_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeNodeServices(Node& node) {
  const auto budget = std::make_shared<CallBudget>();
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<NodeService>(node, budget));
  services.push_back(std::make_unique<AdminService>(node, budget));
  return services;
}

}  // namespace ckptd
