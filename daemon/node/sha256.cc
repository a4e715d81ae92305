#include "daemon/node/sha256.h"

#include <openssl/evp.h>
#include <stdlib.h>

namespace ckptd {
namespace {

// OpenSSL fails here only when it is not usable at all.
void MustBeOne(int result) {
  if (result != 1) abort();
}

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  MustBeOne(context_ != nullptr ? 1 : 0);
  MustBeOne(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr));
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_); }

void Sha256::Add(std::span<const std::byte> data) {
  MustBeOne(EVP_DigestUpdate(context_, data.data(), data.size()));
}

std::string Sha256::Finish() {
  std::string sum(kSha256Bytes, '\0');
  MustBeOne(EVP_DigestFinal_ex(context_, reinterpret_cast<unsigned char*>(sum.data()), nullptr));
  return sum;
}

}  // namespace ckptd
