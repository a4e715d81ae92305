// One session with the node daemon: the handle socket that opened it, the gRPC
// calls that carry its token, and the slabs that were mapped through it.
#ifndef CKPTD_CLIENT_CPP_NODE_CONNECTION_H_
#define CKPTD_CLIENT_CPP_NODE_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "client/cpp/interrupt.h"
#include "client/cpp/slab_mapping.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

// Thread-safe. The session lasts as long as this object, and slabs that are still
// held elsewhere outlive it. Nothing here reconnects: see NodeLink.
//
// Every call waits at most `timeout` for the server's answer, which names who it
// waited for, and a little longer for the transport. UNAVAILABLE when the daemon
// is gone, UNAUTHENTICATED when another one has taken its place. CANCELLED when the
// interrupt is on, except for what ends a save or a load.
class NodeConnection {
 public:
  // UNAVAILABLE, saying how to start the daemon, when none listens in `socket_dir`.
  static absl::StatusOr<std::shared_ptr<NodeConnection>> Open(const std::string& socket_dir,
                                                              std::shared_ptr<Interrupt> interrupt);
  ~NodeConnection();

  NodeConnection(const NodeConnection&) = delete;
  NodeConnection& operator=(const NodeConnection&) = delete;

  // Differs after the daemon was restarted.
  const std::string& instance_id() const { return instance_id_; }
  // The node's name, for messages.
  const std::string& node() const { return node_; }

  [[nodiscard]] absl::Status Join(const v1::JoinRequest& request, v1::JoinResponse* response,
                                  absl::Duration timeout);
  [[nodiscard]] absl::Status BeginSave(const v1::BeginSaveRequest& request,
                                       v1::BeginSaveResponse* response, absl::Duration timeout);
  [[nodiscard]] absl::Status ExtendSnapshot(const v1::ExtendSnapshotRequest& request,
                                            v1::ExtendSnapshotResponse* response,
                                            absl::Duration timeout, OnInterrupt on_interrupt);
  [[nodiscard]] absl::Status FinishSnapshot(const v1::FinishSnapshotRequest& request,
                                            absl::Duration timeout);
  [[nodiscard]] absl::Status WaitSave(const v1::WaitSaveRequest& request, v1::SaveStatus* response,
                                      absl::Duration timeout);
  // A load that was interrupted is ended at the node as soon as it has begun there.
  [[nodiscard]] absl::Status BeginLoad(const v1::BeginLoadRequest& request,
                                       v1::BeginLoadResponse* response, absl::Duration timeout);
  [[nodiscard]] absl::Status NextWindows(const v1::NextWindowsRequest& request,
                                         v1::NextWindowsResponse* response, absl::Duration timeout);
  [[nodiscard]] absl::Status EndLoad(const v1::EndLoadRequest& request, absl::Duration timeout);
  [[nodiscard]] absl::Status ListCheckpoints(const v1::ListCheckpointsRequest& request,
                                             v1::ListCheckpointsResponse* response,
                                             absl::Duration timeout);
  [[nodiscard]] absl::Status ShowCheckpoint(const v1::ShowCheckpointRequest& request,
                                            v1::ShowCheckpointResponse* response,
                                            absl::Duration timeout);
  [[nodiscard]] absl::Status RemoveCheckpoints(const v1::RemoveCheckpointsRequest& request,
                                               v1::RemoveCheckpointsResponse* response,
                                               absl::Duration timeout);

  // The slab of that id, mapped on first use. Its descriptor is closed at once.
  absl::StatusOr<std::shared_ptr<const SlabMapping>> Slab(uint64_t slab_id)
      ABSL_LOCKS_EXCLUDED(handles_mutex_);

 private:
  struct PendingBeginLoad;
  struct Rpc;  // the gRPC channel and stubs

  NodeConnection(UniqueFd handles, std::string instance_id, std::string node,
                 std::shared_ptr<Rpc> rpc);

  const std::string instance_id_;
  const std::string node_;
  const std::shared_ptr<Rpc> rpc_;

  absl::Mutex handles_mutex_;  // one conversation at a time
  const UniqueFd handles_;
  absl::flat_hash_map<uint64_t, std::shared_ptr<const SlabMapping>> slabs_
      ABSL_GUARDED_BY(handles_mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_NODE_CONNECTION_H_
