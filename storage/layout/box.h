// Boxes: axis-aligned ranges of a tensor, the unit in which everything is
// described, planned, stored and copied. Values in, values out: no I/O, no
// threads, no clock. All functions are safe to call from any thread.
//
// Conventions: row-major order; a scalar has zero dimensions and one element; a
// box with a zero length in some dimension is empty and has no elements.
#ifndef CKPTD_STORAGE_LAYOUT_BOX_H_
#define CKPTD_STORAGE_LAYOUT_BOX_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ckptd {

inline constexpr int kMaxDimensions = 64;

using Extents = absl::InlinedVector<int64_t, 4>;

// [offsets, offsets + lengths) in each dimension.
struct Box {
  Extents offsets;
  Extents lengths;

  int dimensions() const { return static_cast<int>(lengths.size()); }
  friend bool operator==(const Box&, const Box&) = default;
};

// The box that is the whole of a tensor of this shape.
Box WholeBox(std::span<const int64_t> shape);

// Checks what came from outside: at most kMaxDimensions, no negative length, and
// elements x element_bytes within 2^63 - 1, a zero length counting as one (strides
// must not overflow either). The error says which of these fails.
absl::Status ValidateShape(std::span<const int64_t> shape, uint64_t element_bytes);
// As ValidateShape, and that the box has the shape's dimensions and lies inside.
absl::Status ValidateBox(const Box& box, std::span<const int64_t> shape, uint64_t element_bytes);

// Elements in a valid box or shape. No overflow check: validate first.
int64_t Volume(const Box& box);
int64_t Volume(std::span<const int64_t> shape);

// The common part; nullopt where there is none (an empty box meets nothing).
// Both boxes are of one tensor, in its coordinates.
std::optional<Box> Intersect(const Box& a, const Box& b);

// Are all elements of `inner` elements of `outer`? Both are boxes of one tensor. An
// empty box has none, so every box contains it, wherever it is said to lie.
bool Contains(const Box& outer, const Box& inner);

// "[0:2,128:256]", offsets and ends; "[]" for a scalar.
std::string ToString(const Box& box);
// "[4, 128]".
std::string ShapeToString(std::span<const int64_t> shape);

// The boxes, in row-major order, of elements [first, first + count) of the
// row-major flattening of `shape`: at most 2n-1 for n dimensions (n >= 1). Each
// is contiguous in the flattening, one after the other.
// Source: ByteCheckpoint (arXiv 2407.20143), section 3.2 "irregular tensors",
// there left to communication; here by arithmetic alone. The range must lie inside
// the shape; none for count 0.
std::vector<Box> FlatRangeToBoxes(std::span<const int64_t> shape, int64_t first, int64_t count);

// Do the boxes cover the shape exactly: no hole, no overlap? Empty boxes are
// ignored. n log n in the number of boxes for grids and whatever else straight cuts
// make (see exact_cover.cc for the rest). The error names one box that is missing
// (FAILED_PRECONDITION) or two that overlap (ALREADY_EXISTS); where both are to be
// found, either. INVALID_ARGUMENT for a box that is not inside the shape.
absl::Status CheckExactCover(std::span<const int64_t> shape, std::span<const Box> boxes);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_LAYOUT_BOX_H_
