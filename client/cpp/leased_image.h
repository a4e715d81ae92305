// A lease as memory: a file's image in the arena, or the part of it that is there at
// present, in which trainers place bytes.
#ifndef CKPTD_CLIENT_CPP_LEASED_IMAGE_H_
#define CKPTD_CLIENT_CPP_LEASED_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/node.pb.h"
#include "client/cpp/slab_mapping.h"
#include "storage/layout/box_copy.h"

namespace ckptd {

// Holds its slabs mapped. Different threads may write different bytes.
class LeasedImage {
 public:
  using FindSlab = absl::FunctionRef<absl::StatusOr<std::shared_ptr<const SlabMapping>>(uint64_t)>;

  // DATA_LOSS when the segments leave a hole or don't lie in their slabs.
  static absl::StatusOr<LeasedImage> Map(const v1::Lease& lease, FindSlab find_slab);

  LeasedImage() = default;  // of no bytes

  // Which bytes of the image are here.
  uint64_t begin() const { return begin_; }
  uint64_t end() const { return end_; }
  bool is_whole() const { return begin_ == 0 && end_ == image_bytes_; }
  // All of [image_offset, image_offset + length)?
  bool Holds(uint64_t image_offset, uint64_t length) const {
    return image_offset >= begin_ && image_offset <= end_ && length <= end_ - image_offset;
  }

  // Copies `part` of `memory` to [image_offset, ...), densely and row-major, across
  // segments. OUT_OF_RANGE, and nothing written, where it would not fit.
  [[nodiscard]] absl::Status WriteBox(const StridedMemory& memory, const Box& part,
                                      uint64_t element_bytes, uint64_t image_offset) const;
  // As WriteBox, of bytes that are dense already.
  [[nodiscard]] absl::Status Write(std::span<const std::byte> bytes, uint64_t image_offset) const;

 private:
  struct Segment {
    uint64_t image_offset;
    std::span<std::byte> bytes;
    std::shared_ptr<const SlabMapping> slab;
  };

  absl::Status CheckFits(uint64_t image_offset, uint64_t length) const;
  // The segment that holds `image_offset`, which is inside the image.
  size_t SegmentAt(uint64_t image_offset) const;
  // Copies to an image range that fits, beginning at or after segment `hint`.
  size_t CopyFrom(size_t hint, const std::byte* source, uint64_t length,
                  uint64_t image_offset) const;

  uint64_t image_bytes_ = 0;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  std::vector<Segment> segments_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_LEASED_IMAGE_H_
