// The gRPC face of a Coordinator: checks the cluster secret and passes calls on.
#ifndef CKPTD_DAEMON_COORDINATOR_COORDINATOR_SERVICE_H_
#define CKPTD_DAEMON_COORDINATOR_COORDINATOR_SERVICE_H_

#include <string>

#include "ckptd/v1/coordinator.grpc.pb.h"
#include "daemon/coordinator/coordinator.h"

namespace ckptd {

class CoordinatorService final : public v1::Coordinator::CallbackService {
 public:
  // `coordinator` must outlive the server. With a `cluster_secret`, calls that
  // don't carry it (kClusterSecretMetadataKey) are UNAUTHENTICATED; empty: none is asked.
  CoordinatorService(Coordinator& coordinator, std::string cluster_secret);

  grpc::ServerUnaryReactor* JoinWorld(grpc::CallbackServerContext* context,
                                      const v1::JoinWorldRequest* request,
                                      v1::JoinWorldResponse* response) override;
  grpc::ServerUnaryReactor* PlanSave(grpc::CallbackServerContext* context,
                                     const v1::PlanSaveRequest* request,
                                     v1::PlanSaveResponse* response) override;
  grpc::ServerUnaryReactor* ReportStaged(grpc::CallbackServerContext* context,
                                         const v1::ReportStagedRequest* request,
                                         v1::ReportStagedResponse* response) override;
  grpc::ServerUnaryReactor* CommitSave(grpc::CallbackServerContext* context,
                                       const v1::CommitSaveRequest* request,
                                       v1::CommitSaveResponse* response) override;
  grpc::ServerUnaryReactor* PlanLoad(grpc::CallbackServerContext* context,
                                     const v1::PlanLoadRequest* request,
                                     v1::PlanLoadResponse* response) override;
  grpc::ServerUnaryReactor* FinishLoad(grpc::CallbackServerContext* context,
                                       const v1::FinishLoadRequest* request,
                                       v1::FinishLoadResponse* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::AuthorizedListCheckpoints* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerUnaryReactor* ShowCheckpoint(grpc::CallbackServerContext* context,
                                           const v1::AuthorizedShowCheckpoint* request,
                                           v1::ShowCheckpointResponse* response) override;
  grpc::ServerUnaryReactor* RemoveCheckpoints(grpc::CallbackServerContext* context,
                                              const v1::AuthorizedRemoveCheckpoints* request,
                                              v1::RemoveCheckpointsResponse* response) override;

 private:
  template <typename Response, typename Request>
  grpc::ServerUnaryReactor* Forward(const grpc::CallbackServerContext& context,
                                    const Request& request, Response* response,
                                    void (Coordinator::*method)(const Request&, Done<Response>));
  absl::Status Authenticate(const grpc::CallbackServerContext& context) const;

  Coordinator& coordinator_;
  const std::string cluster_secret_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_COORDINATOR_SERVICE_H_
