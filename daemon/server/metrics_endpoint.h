// Serves a Prometheus registry as http://<address>/metrics.
#ifndef CKPTD_DAEMON_SERVER_METRICS_ENDPOINT_H_
#define CKPTD_DAEMON_SERVER_METRICS_ENDPOINT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/server/address.h"

namespace prometheus {
class Exposer;
class Registry;
}  // namespace prometheus

namespace ckptd {

// Serves from Start to destruction, on two threads of its own.
class MetricsEndpoint {
 public:
  // Port 0 takes a free one. UNAVAILABLE if the port is taken.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const Address& address, std::shared_ptr<prometheus::Registry> registry);
  ~MetricsEndpoint();

  int port() const { return port_; }

 private:
  MetricsEndpoint(std::shared_ptr<prometheus::Registry> registry,
                  std::unique_ptr<prometheus::Exposer> exposer);

  const std::shared_ptr<prometheus::Registry> registry_;
  const std::unique_ptr<prometheus::Exposer> exposer_;
  const int port_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_METRICS_ENDPOINT_H_
