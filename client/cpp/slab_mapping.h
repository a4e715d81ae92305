// An arena slab's memory in this process.
#ifndef CKPTD_CLIENT_CPP_SLAB_MAPPING_H_
#define CKPTD_CLIENT_CPP_SLAB_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace ckptd {

// The whole of one slab, mapped shared and not inherited by forked children.
// Unmapped with the last reference. Thread-safe; the bytes are the caller's care.
class SlabMapping {
 public:
  // Maps `size_bytes` of the memfd, which stays the caller's. DATA_LOSS when the
  // file is smaller or may still shrink (touching the mapping could then kill us).
  static absl::StatusOr<std::shared_ptr<const SlabMapping>> Map(int descriptor,
                                                                uint64_t size_bytes);
  ~SlabMapping();

  SlabMapping(const SlabMapping&) = delete;
  SlabMapping& operator=(const SlabMapping&) = delete;

  // [offset, offset + length) of the slab. OUT_OF_RANGE when it isn't inside.
  absl::StatusOr<std::span<std::byte>> Range(uint64_t offset, uint64_t length) const;

 private:
  SlabMapping(std::byte* data, uint64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* const data_;
  const uint64_t size_bytes_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_SLAB_MAPPING_H_
