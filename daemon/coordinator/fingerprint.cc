#include "daemon/coordinator/fingerprint.h"

#include <openssl/sha.h>

namespace ckptd {

std::string Sha256(std::string_view bytes) {
  std::string digest(kFingerprintBytes, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string PlanId(std::span<const std::string> fingerprints) {
  std::string all;
  all.reserve(fingerprints.size() * kFingerprintBytes);
  for (const std::string& fingerprint : fingerprints) all += fingerprint;
  return Sha256(all);
}

}  // namespace ckptd
