#include "client/cpp/leased_image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd {

absl::StatusOr<LeasedImage> LeasedImage::Map(const v1::Lease& lease, FindSlab find_slab) {
  LeasedImage image;
  image.image_bytes_ = lease.image_bytes();
  uint64_t covered = lease.segments().empty() ? 0 : lease.segments(0).image_offset();
  image.begin_ = covered;
  for (const v1::Segment& segment : lease.segments()) {
    if (segment.image_offset() != covered) {
      return absl::DataLossError(absl::StrCat("a lease has a hole at byte ", covered));
    }
    absl::StatusOr<std::shared_ptr<const SlabMapping>> slab = find_slab(segment.slab_id());
    if (!slab.ok()) return slab.status();
    const auto bytes = (*slab)->Range(segment.slab_offset(), segment.length_bytes());
    if (!bytes.ok()) return bytes.status();
    image.segments_.push_back({covered, *bytes, *std::move(slab)});
    covered += segment.length_bytes();
  }
  image.end_ = std::min(covered, image.image_bytes_);
  return image;
}

absl::Status LeasedImage::CheckFits(uint64_t image_offset, uint64_t length) const {
  if (Holds(image_offset, length)) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("a placement of ", length, " bytes at ", image_offset,
                                            " leaves its lease of bytes ", begin_, " to ", end_));
}

size_t LeasedImage::SegmentAt(uint64_t image_offset) const {
  const auto after = std::upper_bound(
      segments_.begin(), segments_.end(), image_offset,
      [](uint64_t offset, const Segment& segment) { return offset < segment.image_offset; });
  return static_cast<size_t>(after - segments_.begin()) - 1;
}

size_t LeasedImage::CopyFrom(size_t hint, const std::byte* source, uint64_t length,
                             uint64_t image_offset) const {
  size_t index = hint;
  while (length > 0) {
    const Segment& segment = segments_[index];
    const uint64_t within = image_offset - segment.image_offset;
    if (within >= segment.bytes.size()) {
      ++index;
      continue;
    }
    const uint64_t now = std::min<uint64_t>(length, segment.bytes.size() - within);
    std::memcpy(segment.bytes.data() + within, source, now);
    source += now;
    image_offset += now;
    length -= now;
  }
  return index;
}

absl::Status LeasedImage::WriteBox(const StridedMemory& memory, const Box& part,
                                   uint64_t element_bytes, uint64_t image_offset) const {
  const uint64_t length = static_cast<uint64_t>(Volume(part)) * element_bytes;
  if (absl::Status fits = CheckFits(image_offset, length); !fits.ok()) return fits;
  if (length == 0) return absl::OkStatus();
  size_t segment = SegmentAt(image_offset);  // runs come in ascending order
  ForEachRun(memory, part, element_bytes,
             [&](uint64_t offset, std::byte* pointer, uint64_t run_bytes) {
               segment = CopyFrom(segment, pointer, run_bytes, image_offset + offset);
             });
  return absl::OkStatus();
}

absl::Status LeasedImage::Write(std::span<const std::byte> bytes, uint64_t image_offset) const {
  if (absl::Status fits = CheckFits(image_offset, bytes.size()); !fits.ok()) return fits;
  if (!bytes.empty()) {
    CopyFrom(SegmentAt(image_offset), bytes.data(), bytes.size(), image_offset);
  }
  return absl::OkStatus();
}

}  // namespace ckptd
