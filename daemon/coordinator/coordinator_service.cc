#include "daemon/coordinator/coordinator_service.h"

#include <openssl/crypto.h>

#include <functional>
#include <utility>

#include "daemon/runtime/unary_call.h"
#include "proto/rpc/wire.h"

namespace ckptd {

CoordinatorService::CoordinatorService(Coordinator& coordinator, std::string cluster_secret)
    : coordinator_(coordinator), cluster_secret_(std::move(cluster_secret)) {}

absl::Status CoordinatorService::Authenticate(const grpc::CallbackServerContext& context) const {
  if (cluster_secret_.empty()) return absl::OkStatus();
  const auto& metadata = context.client_metadata();
  auto it = metadata.find(kClusterSecretMetadataKey);
  // Compared in constant time: the answer's delay tells nothing.
  if (it != metadata.end() && it->second.size() == cluster_secret_.size() &&
      CRYPTO_memcmp(it->second.data(), cluster_secret_.data(), cluster_secret_.size()) == 0) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(
      "this coordinator wants the cluster's secret; give the node the same secret file");
}

// Every method: the secret first, then the coordinator's method of that name.
template <typename Response, typename Request>
grpc::ServerUnaryReactor* CoordinatorService::Forward(const grpc::CallbackServerContext& context,
                                                      const Request& request, Response* response,
                                                      void (Coordinator::*method)(const Request&,
                                                                                  Done<Response>)) {
  return ServeUnary<Response>(response, [&](Done<Response> done) {
    if (absl::Status status = Authenticate(context); !status.ok()) return done(status);
    std::invoke(method, coordinator_, request, std::move(done));
  });
}

grpc::ServerUnaryReactor* CoordinatorService::JoinWorld(grpc::CallbackServerContext* context,
                                                        const v1::JoinWorldRequest* request,
                                                        v1::JoinWorldResponse* response) {
  return Forward(*context, *request, response, &Coordinator::JoinWorld);
}
grpc::ServerUnaryReactor* CoordinatorService::PlanSave(grpc::CallbackServerContext* context,
                                                       const v1::PlanSaveRequest* request,
                                                       v1::PlanSaveResponse* response) {
  return Forward(*context, *request, response, &Coordinator::PlanSave);
}
grpc::ServerUnaryReactor* CoordinatorService::ReportStaged(grpc::CallbackServerContext* context,
                                                           const v1::ReportStagedRequest* request,
                                                           v1::ReportStagedResponse* response) {
  return Forward(*context, *request, response, &Coordinator::ReportStaged);
}
grpc::ServerUnaryReactor* CoordinatorService::CommitSave(grpc::CallbackServerContext* context,
                                                         const v1::CommitSaveRequest* request,
                                                         v1::CommitSaveResponse* response) {
  return Forward(*context, *request, response, &Coordinator::CommitSave);
}
grpc::ServerUnaryReactor* CoordinatorService::PlanLoad(grpc::CallbackServerContext* context,
                                                       const v1::PlanLoadRequest* request,
                                                       v1::PlanLoadResponse* response) {
  return Forward(*context, *request, response, &Coordinator::PlanLoad);
}
grpc::ServerUnaryReactor* CoordinatorService::FinishLoad(grpc::CallbackServerContext* context,
                                                         const v1::FinishLoadRequest* request,
                                                         v1::FinishLoadResponse* response) {
  return Forward(*context, *request, response, &Coordinator::FinishLoad);
}
grpc::ServerUnaryReactor* CoordinatorService::ListCheckpoints(
    grpc::CallbackServerContext* context, const v1::AuthorizedListCheckpoints* request,
    v1::ListCheckpointsResponse* response) {
  return Forward(*context, *request, response, &Coordinator::ListCheckpoints);
}
grpc::ServerUnaryReactor* CoordinatorService::ShowCheckpoint(
    grpc::CallbackServerContext* context, const v1::AuthorizedShowCheckpoint* request,
    v1::ShowCheckpointResponse* response) {
  return Forward(*context, *request, response, &Coordinator::ShowCheckpoint);
}
grpc::ServerUnaryReactor* CoordinatorService::RemoveCheckpoints(
    grpc::CallbackServerContext* context, const v1::AuthorizedRemoveCheckpoints* request,
    v1::RemoveCheckpointsResponse* response) {
  return Forward(*context, *request, response, &Coordinator::RemoveCheckpoints);
}

}  // namespace ckptd
