// The node daemon without its gRPC front: sessions, arena, saves and loads of
// this machine's trainers.
#ifndef CKPTD_DAEMON_NODE_NODE_H_
#define CKPTD_DAEMON_NODE_NODE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/node_options.h"
#include "daemon/node/session.h"
#include "daemon/runtime/done.h"

namespace ckptd {

// Thread-safe. The methods named like calls of node.proto return at once; `done`
// is called exactly once, now or later, from any thread.
class Node {
 public:
  // Takes and touches the arena, and listens on the handle socket: when this
  // returns OK, trainers can connect. INVALID_ARGUMENT for bad options,
  // RESOURCE_EXHAUSTED when the arena's memory isn't there.
  static absl::StatusOr<std::unique_ptr<Node>> Create(NodeOptions options,
                                                      NodeEnvironment environment);
  // As Stop().
  ~Node();

  // Refuses new worlds, saves and loads with UNAVAILABLE and waits, until `deadline` at
  // most, for the saves that are under way. DEADLINE_EXCEEDED names those left.
  [[nodiscard]] absl::Status Drain(absl::Time deadline);
  // Ends sessions, fails what is under way (waiting calls get UNAVAILABLE), joins
  // all threads. Idempotent.
  void Stop();

  // The session that this token was given to. UNAUTHENTICATED, with what to do.
  absl::StatusOr<SessionPtr> Authenticate(absl::string_view token) const;

  void Join(SessionPtr session, v1::JoinRequest request, Done<v1::JoinResponse> done);
  void BeginSave(SessionPtr session, v1::BeginSaveRequest request,
                 Done<v1::BeginSaveResponse> done);
  void ExtendSnapshot(SessionPtr session, v1::ExtendSnapshotRequest request,
                      Done<v1::ExtendSnapshotResponse> done);
  void FinishSnapshot(SessionPtr session, v1::FinishSnapshotRequest request,
                      Done<v1::FinishSnapshotResponse> done);
  void WaitSave(SessionPtr session, v1::WaitSaveRequest request, Done<v1::SaveStatus> done);
  void BeginLoad(SessionPtr session, v1::BeginLoadRequest request,
                 Done<v1::BeginLoadResponse> done);
  void NextWindows(SessionPtr session, v1::NextWindowsRequest request,
                   Done<v1::NextWindowsResponse> done);
  void EndLoad(SessionPtr session, v1::EndLoadRequest request, Done<v1::EndLoadResponse> done);

  void ListCheckpoints(SessionPtr session, v1::ListCheckpointsRequest request,
                       Done<v1::ListCheckpointsResponse> done);
  void ShowCheckpoint(SessionPtr session, v1::ShowCheckpointRequest request,
                      Done<v1::ShowCheckpointResponse> done);
  void RemoveCheckpoints(SessionPtr session, v1::RemoveCheckpointsRequest request,
                         Done<v1::RemoveCheckpointsResponse> done);
  void SetPersistPaused(SessionPtr session, v1::SetPersistPausedRequest request,
                        Done<v1::SetPersistPausedResponse> done);
  void GetNodeStatus(SessionPtr session, v1::GetNodeStatusRequest request,
                     Done<v1::GetNodeStatusResponse> done);

  // The same, for the process itself.
  v1::GetNodeStatusResponse Status() const;

 private:
  struct Parts;
  explicit Node(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_NODE_H_
