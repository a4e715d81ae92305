// A slab: one sealed memfd, mapped and touched, that can be shared with trainers.
#ifndef CKPTD_DAEMON_NODE_SLAB_H_
#define CKPTD_DAEMON_NODE_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

// Immutable; destroying it gives its pages back even while a trainer has it
// mapped (that trainer then reads zeros).
class Slab {
 public:
  // Sealed SHRINK|GROW|SEAL, all pages present, not inherited by fork or exec. Page
  // faults run on `touch_threads` threads. RESOURCE_EXHAUSTED when memory is short.
  static absl::StatusOr<std::unique_ptr<Slab>> Create(uint64_t id, uint64_t bytes,
                                                      int touch_threads);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  uint64_t id() const { return id_; }
  std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  int descriptor() const { return descriptor_.get(); }

 private:
  Slab(uint64_t id, UniqueFd descriptor, std::byte* data, uint64_t size_bytes)
      : id_(id), descriptor_(std::move(descriptor)), data_(data), size_bytes_(size_bytes) {}

  const uint64_t id_;
  UniqueFd descriptor_;
  std::byte* const data_;
  const uint64_t size_bytes_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SLAB_H_
