// gRPC servers and channels with the limits that both ends agree on (wire.h), the
// standard health service and reflection.
#ifndef CKPTD_DAEMON_SERVER_GRPC_SERVER_H_
#define CKPTD_DAEMON_SERVER_GRPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/server/address.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"

namespace ckptd {

// For answers that are on their way when a host stops; what waits was answered before.
inline constexpr absl::Duration kStopPatience = absl::Seconds(5);

// Once per process, before the first server.
void EnableHealthAndReflection();

// Thread-safe.
class GrpcServer {
 public:
  struct Config {
    Address listen;       // a Unix socket's stale file must be gone; port 0: any free one
    bool listens = true;  // false: in-process calls only
    int max_message_bytes = 0;
    std::vector<grpc::Service*> services;  // must outlive the server
  };
  // SERVING from the start. UNAVAILABLE naming the address if it can't be had.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const Config& config);
  // As Stop with no patience.
  ~GrpcServer();

  // Where it listens, with the port that was chosen.
  const Address& address() const { return address_; }
  std::shared_ptr<grpc::Channel> InProcessChannel(int max_message_bytes);

  // Health checks are answered NOT_SERVING from now on; calls are still taken.
  void SetNotServing();
  // Takes no new calls; gives those in progress `patience`, then cancels them, and
  // waits until all have ended. Idempotent.
  void Stop(absl::Duration patience);

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, Address address);

  const std::unique_ptr<grpc::Server> server_;
  const Address address_;
};

// A channel to a daemon on another machine (or another process of this one), with
// keepalive. Connects when first used, and again after a loss.
std::shared_ptr<grpc::Channel> ConnectChannel(const Address& address, int max_message_bytes);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_GRPC_SERVER_H_
