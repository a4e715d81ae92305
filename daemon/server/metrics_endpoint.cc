#include "daemon/server/metrics_endpoint.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "prometheus/exposer.h"
#include "prometheus/registry.h"

namespace ckptd {

MetricsEndpoint::MetricsEndpoint(std::shared_ptr<prometheus::Registry> registry,
                                 std::unique_ptr<prometheus::Exposer> exposer)
    : registry_(std::move(registry)),
      exposer_(std::move(exposer)),
      port_(exposer_->GetListeningPorts().front()) {}

MetricsEndpoint::~MetricsEndpoint() = default;

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const Address& address, std::shared_ptr<prometheus::Registry> registry) {
  // The library's only way to report a port in use is to throw.
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address.ToString());
    exposer->RegisterCollectable(registry);
    return std::unique_ptr<MetricsEndpoint>(
        new MetricsEndpoint(std::move(registry), std::move(exposer)));
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("serving metrics on ", address.ToString(),
                     ": the port can't be had; another daemon may have it. Choose another "
                     "--metrics-listen, 127.0.0.1:0 for any free port, or off"));
  }
}

}  // namespace ckptd
