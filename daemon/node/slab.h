// A slab: one sealed memfd, mapped and touched, that can be shared with trainers.
#ifndef CKPTD_DAEMON_NODE_SLAB_H_
#define CKPTD_DAEMON_NODE_SLAB_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "proto/rpc/unique_fd.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// Immutable; destroying it gives its pages back even while a trainer has it
// mapped (that trainer then reads zeros).
class Slab {
 public:
  // Sealed SHRINK|GROW|SEAL, all pages present, not inherited by fork or exec. Page
  // faults run on `touch_threads` threads. RESOURCE_EXHAUSTED when memory is short.
  // `file_system`, which must outlive it, is told of the memory.
  static absl::StatusOr<std::unique_ptr<Slab>> Create(uint64_t id, uint64_t bytes,
                                                      int touch_threads, FileSystem& file_system);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  uint64_t id() const { return id_; }
  std::byte* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  int descriptor() const { return descriptor_.get(); }
  // Whether I/O goes the fast way; see FileSystem::AddMemory.
  bool is_known_to_storage() const { return is_known_to_storage_; }

 private:
  Slab(uint64_t id, UniqueFd descriptor, std::byte* data, uint64_t size_bytes,
       FileSystem& file_system)
      : id_(id),
        descriptor_(std::move(descriptor)),
        data_(data),
        size_bytes_(size_bytes),
        file_system_(file_system) {}

  const uint64_t id_;
  UniqueFd descriptor_;
  std::byte* const data_;
  const uint64_t size_bytes_;
  FileSystem& file_system_;
  bool is_known_to_storage_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SLAB_H_
