// CoordinatorClient over a gRPC channel, remote or in-process.
#ifndef CKPTD_DAEMON_NODE_GRPC_COORDINATOR_CLIENT_H_
#define CKPTD_DAEMON_NODE_GRPC_COORDINATOR_CLIENT_H_

#include <memory>
#include <string>

#include "daemon/node/coordinator_client.h"
#include "daemon/node/probe.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/clock.h"
#include "grpcpp/channel.h"

namespace ckptd {

// Calls that fail with UNAVAILABLE are sent again after a pause that doubles from
// 50 ms to 2 s, until their deadline. `cluster_secret` (may be empty) goes with
// every call. The destructor cancels what is under way (done gets CANCELLED) and
// waits for it. `clock`, `alarms` and `probe` must outlive it.
std::unique_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(std::shared_ptr<grpc::Channel> channel,
                                                             std::string cluster_secret,
                                                             const Clock& clock, Alarms& alarms,
                                                             NodeProbe& probe);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_GRPC_COORDINATOR_CLIENT_H_
