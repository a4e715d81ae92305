// SHA-256: of layouts (a rank's fingerprint) and of fingerprints (a plan's id).
#ifndef CKPTD_DAEMON_COORDINATOR_FINGERPRINT_H_
#define CKPTD_DAEMON_COORDINATOR_FINGERPRINT_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ckptd {

inline constexpr size_t kFingerprintBytes = 32;

std::string Sha256(std::string_view bytes);
// Of all ranks' fingerprints in rank order, kFingerprintBytes each.
std::string PlanId(std::span<const std::string> fingerprints);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_FINGERPRINT_H_
