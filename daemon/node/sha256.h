// SHA-256, for fingerprints and small contents.
#ifndef CKPTD_DAEMON_NODE_SHA256_H_
#define CKPTD_DAEMON_NODE_SHA256_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace ckptd {

inline constexpr size_t kSha256Bytes = 32;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void Add(std::span<const std::byte> data);
  void Add(absl::string_view data) {
    Add({reinterpret_cast<const std::byte*>(data.data()), data.size()});
  }
  // kSha256Bytes bytes. Call once.
  std::string Finish();

 private:
  evp_md_ctx_st* context_;
};

inline std::string Sha256Of(absl::string_view data) {
  Sha256 sum;
  sum.Add(data);
  return sum.Finish();
}

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SHA256_H_
