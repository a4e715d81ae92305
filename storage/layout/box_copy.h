// Copying boxes between memories: the inner loop of snapshot and restore.
// Pure address arithmetic and memcpy; callers own all memory and its lifetime.
#ifndef CKPTD_STORAGE_LAYOUT_BOX_COPY_H_
#define CKPTD_STORAGE_LAYOUT_BOX_COPY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/functional/function_ref.h"
#include "storage/layout/box.h"

namespace ckptd {

// Memory that holds a box of a tensor: element (i0, i1, ...) of the box (relative
// to its offsets) lies at data + sum(i_k * strides_k) * element_bytes.
struct StridedMemory {
  std::byte* data = nullptr;
  Box box;          // in the tensor's coordinates
  Extents strides;  // in elements; as many as dimensions; may be zero or negative
};

// Strides of a dense row-major box, in elements.
Extents DenseStrides(std::span<const int64_t> lengths);

// Calls `run(offset_bytes, pointer, length_bytes)` for every contiguous run of `part` (a box inside
// memory.box) in row-major order: offset_bytes is the run's place in the dense row-major image of
// `part`, pointer its place in `memory`. Dimensions that are contiguous with each other are merged,
// so a dense part is one call.
void ForEachRun(
    const StridedMemory& memory, const Box& part, uint64_t element_bytes,
    absl::FunctionRef<void(uint64_t offset_bytes, std::byte* pointer, uint64_t length_bytes)> run);

// Copies `part`, a box inside both memories' boxes, from one to the other. The
// memories must not overlap. `from` is only read.
void CopyBox(const StridedMemory& from, const StridedMemory& to, const Box& part,
             uint64_t element_bytes);

// Scatters a window of a stored piece into memory. `window` holds elements
// [first_element, first_element + window.size() / element_bytes) of the row-major
// image of `piece`; whatever of it lies inside memory.box is copied there.
// Returns the bytes copied.
uint64_t ScatterWindow(std::span<const std::byte> window, const Box& piece, int64_t first_element,
                       uint64_t element_bytes, const StridedMemory& memory);

// The flat element range [first, end) of the row-major image of `piece` that
// spans all of `wanted` (inside piece), cut where a gap of at least
// `min_gap_elements` unwanted elements lies between runs. Ascending, disjoint.
struct ElementRange {
  int64_t first = 0;
  int64_t end = 0;
  friend bool operator==(const ElementRange&, const ElementRange&) = default;
};
std::vector<ElementRange> WantedRanges(const Box& piece, std::span<const Box> wanted,
                                       int64_t min_gap_elements);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_LAYOUT_BOX_COPY_H_
