// The node's side of the conversation with the coordinator.
#ifndef CKPTD_DAEMON_NODE_COORDINATOR_CLIENT_H_
#define CKPTD_DAEMON_NODE_COORDINATOR_CLIENT_H_

#include "ckptd/v1/coordinator.pb.h"
#include "daemon/runtime/done.h"

namespace ckptd {

// Thread-safe. Every call answers exactly once, from any thread, at the latest a
// little after the request's timeout_seconds (or 30 s where it has none): the
// coordinator away counts as UNAVAILABLE and is tried again until then.
class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;

  virtual void JoinWorld(v1::JoinWorldRequest request, Done<v1::JoinWorldResponse> done) = 0;
  virtual void PlanSave(v1::PlanSaveRequest request, Done<v1::PlanSaveResponse> done) = 0;
  virtual void ReportStaged(v1::ReportStagedRequest request,
                            Done<v1::ReportStagedResponse> done) = 0;
  virtual void CommitSave(v1::CommitSaveRequest request, Done<v1::CommitSaveResponse> done) = 0;
  virtual void PlanLoad(v1::PlanLoadRequest request, Done<v1::PlanLoadResponse> done) = 0;
  virtual void FinishLoad(v1::FinishLoadRequest request, Done<v1::FinishLoadResponse> done) = 0;
  virtual void ListCheckpoints(v1::AuthorizedListCheckpoints request,
                               Done<v1::ListCheckpointsResponse> done) = 0;
  virtual void ShowCheckpoint(v1::AuthorizedShowCheckpoint request,
                              Done<v1::ShowCheckpointResponse> done) = 0;
  virtual void RemoveCheckpoints(v1::AuthorizedRemoveCheckpoints request,
                                 Done<v1::RemoveCheckpointsResponse> done) = 0;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_COORDINATOR_CLIENT_H_
