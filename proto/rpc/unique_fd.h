// A file descriptor that is closed with its holder.
#ifndef CKPTD_PROTO_RPC_UNIQUE_FD_H_
#define CKPTD_PROTO_RPC_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace ckptd {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int descriptor) : descriptor_(descriptor) {}
  UniqueFd(UniqueFd&& other) noexcept : descriptor_(other.release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(descriptor_, -1); }
  void reset(int descriptor = -1) {
    const int old = std::exchange(descriptor_, descriptor);
    if (old >= 0) ::close(old);
  }

 private:
  int descriptor_ = -1;
};

}  // namespace ckptd

#endif  // CKPTD_PROTO_RPC_UNIQUE_FD_H_
