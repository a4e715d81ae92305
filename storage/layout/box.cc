#include "storage/layout/box.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace ckptd {

Box WholeBox(std::span<const int64_t> shape) {
  return Box{Extents(shape.size(), 0), Extents(shape.begin(), shape.end())};
}

absl::Status ValidateShape(std::span<const int64_t> shape, uint64_t element_bytes) {
  if (shape.size() > kMaxDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a shape of ", shape.size(), " dimensions; at most ", kMaxDimensions, " are supported"));
  }
  // A zero length makes the tensor empty, but the other lengths must not overflow
  // in the strides that are computed from them: so zeros count as ones here.
  uint64_t bytes = element_bytes;
  bool overflows = element_bytes > std::numeric_limits<int64_t>::max();
  for (const int64_t length : shape) {
    if (length < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a negative length in shape ", ShapeToString(shape)));
    }
    const uint64_t factor = std::max<int64_t>(length, 1);
    overflows |= __builtin_mul_overflow(bytes, factor, &bytes) ||
                 bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  }
  if (overflows) {
    return absl::InvalidArgumentError(absl::StrCat("shape ", ShapeToString(shape), " of ",
                                                   element_bytes,
                                                   "-byte elements has 2^63 bytes or more"));
  }
  return absl::OkStatus();
}

absl::Status ValidateBox(const Box& box, std::span<const int64_t> shape, uint64_t element_bytes) {
  if (absl::Status status = ValidateShape(shape, element_bytes); !status.ok()) return status;
  if (box.offsets.size() != shape.size() || box.lengths.size() != shape.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a box of ", box.offsets.size(), " offsets and ", box.lengths.size(),
                     " lengths in a tensor of shape ", ShapeToString(shape)));
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t offset = box.offsets[d];
    const int64_t length = box.lengths[d];
    // Subtracting, since offset + length may overflow.
    if (offset < 0 || length < 0 || offset > shape[d] || length > shape[d] - offset) {
      return absl::InvalidArgumentError(
          absl::StrCat("box with offsets ", ShapeToString(box.offsets), " and lengths ",
                       ShapeToString(box.lengths), " is not inside shape ", ShapeToString(shape)));
    }
  }
  return absl::OkStatus();
}

int64_t Volume(std::span<const int64_t> shape) {
  int64_t volume = 1;
  for (const int64_t length : shape) {
    if (length == 0) return 0;
    volume *= length;
  }
  return volume;
}

int64_t Volume(const Box& box) { return Volume(box.lengths); }

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box common;
  common.offsets.resize(a.lengths.size());
  common.lengths.resize(a.lengths.size());
  for (size_t d = 0; d < a.lengths.size(); ++d) {
    const int64_t begin = std::max(a.offsets[d], b.offsets[d]);
    const int64_t end = std::min(a.offsets[d] + a.lengths[d], b.offsets[d] + b.lengths[d]);
    if (begin >= end) return std::nullopt;
    common.offsets[d] = begin;
    common.lengths[d] = end - begin;
  }
  return common;
}

bool Contains(const Box& outer, const Box& inner) {
  if (Volume(inner) == 0) return true;
  for (size_t d = 0; d < outer.lengths.size(); ++d) {
    if (inner.offsets[d] < outer.offsets[d] ||
        inner.offsets[d] + inner.lengths[d] > outer.offsets[d] + outer.lengths[d]) {
      return false;
    }
  }
  return true;
}

std::string ToString(const Box& box) {
  std::string text = "[";
  for (int d = 0; d < box.dimensions(); ++d) {
    absl::StrAppend(&text, d == 0 ? "" : ",", box.offsets[d], ":", box.offsets[d] + box.lengths[d]);
  }
  return text + "]";
}

std::string ShapeToString(std::span<const int64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape.begin(), shape.end(), ", "), "]");
}

}  // namespace ckptd
