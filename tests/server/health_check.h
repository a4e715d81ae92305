// Asks the standard health service (grpc.health.v1) of a server.
#ifndef CKPTD_TESTS_SERVER_HEALTH_CHECK_H_
#define CKPTD_TESTS_SERVER_HEALTH_CHECK_H_

#include <string>

namespace ckptd {

// "SERVING", "NOT_SERVING", or the call's error. `target` as gRPC writes it.
std::string HealthOf(const std::string& target);

}  // namespace ckptd

#endif  // CKPTD_TESTS_SERVER_HEALTH_CHECK_H_
