// The gRPC services Node and Admin over a Node: authentication by the session's
// token, and nothing else of substance.
#ifndef CKPTD_DAEMON_NODE_NODE_SERVICE_H_
#define CKPTD_DAEMON_NODE_NODE_SERVICE_H_

#include <memory>
#include <vector>

#include "daemon/node/node.h"
#include "grpcpp/impl/codegen/service_type.h"

namespace ckptd {

// Both services, to be registered with a server on the node's Unix socket only.
// They must outlive that server, and `node` must outlive them.
std::vector<std::unique_ptr<grpc::Service>> MakeNodeServices(Node& node);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_NODE_SERVICE_H_
