// A session with the node daemon for its Admin service.
#ifndef CKPTD_CLIENT_CTL_ADMIN_CONNECTION_H_
#define CKPTD_CLIENT_CTL_ADMIN_CONNECTION_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ckptd/v1/node.pb.h"

namespace ckptd {

// One thread. The session ends with this object. Every call waits at most a minute
// for its answer. UNAVAILABLE when the daemon is gone.
class AdminConnection {
 public:
  // UNAVAILABLE, saying how to start the daemon, when none listens there.
  static absl::StatusOr<std::unique_ptr<AdminConnection>> Open(const std::string& socket_dir);
  virtual ~AdminConnection() = default;

  virtual absl::StatusOr<v1::ListCheckpointsResponse> List(
      const v1::ListCheckpointsRequest& request) = 0;
  virtual absl::StatusOr<v1::ShowCheckpointResponse> Show(
      const v1::ShowCheckpointRequest& request) = 0;
  virtual absl::StatusOr<v1::RemoveCheckpointsResponse> Remove(
      const v1::RemoveCheckpointsRequest& request) = 0;
  virtual absl::StatusOr<v1::SetPersistPausedResponse> SetPersistPaused(
      const v1::SetPersistPausedRequest& request) = 0;
  virtual absl::StatusOr<v1::GetNodeStatusResponse> Status(
      const v1::GetNodeStatusRequest& request) = 0;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_ADMIN_CONNECTION_H_
