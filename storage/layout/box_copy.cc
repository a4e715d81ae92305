#include "storage/layout/box_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ckptd {
namespace {

// One loop of a copy: `length` steps, each so many elements further in memory A and
// in memory B.
struct Loop {
  int64_t length = 0;
  int64_t stride_a = 0;
  int64_t stride_b = 0;
};
using Loops = absl::InlinedVector<Loop, 6>;  // outermost first; never empty

// The loops over a box, with dimensions merged that are contiguous with each other in
// both memories. No length is zero.
Loops MergedLoops(std::span<const int64_t> lengths, std::span<const int64_t> strides_a,
                  std::span<const int64_t> strides_b) {
  Loops inner_first;
  for (size_t d = lengths.size(); d-- > 0;) {
    if (lengths[d] == 1) continue;
    if (!inner_first.empty()) {
      Loop& inner = inner_first.back();
      if (strides_a[d] == inner.stride_a * inner.length &&
          strides_b[d] == inner.stride_b * inner.length) {
        inner.length *= lengths[d];
        continue;
      }
    }
    inner_first.push_back(Loop{lengths[d], strides_a[d], strides_b[d]});
  }
  if (inner_first.empty()) inner_first.push_back(Loop{1, 1, 1});
  std::reverse(inner_first.begin(), inner_first.end());
  return inner_first;
}

// Calls body(position_a, position_b), in elements, for each step of all loops but the
// innermost.
template <typename Body>
void ForEachRow(const Loops& loops, const Body& body) {
  const size_t outer = loops.size() - 1;
  absl::InlinedVector<int64_t, 6> index(outer, 0);
  int64_t a = 0;
  int64_t b = 0;
  while (true) {
    body(a, b);
    size_t d = outer;
    while (d > 0) {
      --d;
      a += loops[d].stride_a;
      b += loops[d].stride_b;
      if (++index[d] < loops[d].length) break;
      a -= loops[d].stride_a * loops[d].length;
      b -= loops[d].stride_b * loops[d].length;
      index[d] = 0;
      if (d == 0) return;
    }
    if (outer == 0) return;
  }
}

std::byte* FirstElement(const StridedMemory& memory, const Box& part, uint64_t element_bytes) {
  int64_t elements = 0;
  for (int d = 0; d < part.dimensions(); ++d) {
    elements += (part.offsets[d] - memory.box.offsets[d]) * memory.strides[d];
  }
  return memory.data + elements * static_cast<int64_t>(element_bytes);
}

// Copies single elements of a size known to the compiler.
template <int64_t kBytes>
void CopyElements(const Loop& loop, const std::byte* from, std::byte* to) {
  for (int64_t i = 0; i < loop.length; ++i) {
    std::memcpy(to, from, kBytes);
    from += loop.stride_a * kBytes;
    to += loop.stride_b * kBytes;
  }
}

void CopyRow(const Loop& loop, const std::byte* from, std::byte* to, int64_t element_bytes) {
  if (loop.stride_a == 1 && loop.stride_b == 1) {
    std::memcpy(to, from, loop.length * element_bytes);
    return;
  }
  switch (element_bytes) {
    case 1:
      return CopyElements<1>(loop, from, to);
    case 2:
      return CopyElements<2>(loop, from, to);
    case 4:
      return CopyElements<4>(loop, from, to);
    case 8:
      return CopyElements<8>(loop, from, to);
    case 16:
      return CopyElements<16>(loop, from, to);
    default:
      for (int64_t i = 0; i < loop.length; ++i) {
        std::memcpy(to + i * loop.stride_b * element_bytes,
                    from + i * loop.stride_a * element_bytes, element_bytes);
      }
  }
}

}  // namespace

Extents DenseStrides(std::span<const int64_t> lengths) {
  Extents strides(lengths.size(), 1);
  for (size_t d = lengths.size(); d-- > 1;) strides[d - 1] = strides[d] * lengths[d];
  return strides;
}

void ForEachRun(
    const StridedMemory& memory, const Box& part, uint64_t element_bytes,
    absl::FunctionRef<void(uint64_t offset_bytes, std::byte* pointer, uint64_t length_bytes)> run) {
  if (Volume(part) == 0) return;
  const int64_t bytes = static_cast<int64_t>(element_bytes);
  const Loops loops = MergedLoops(part.lengths, memory.strides, DenseStrides(part.lengths));
  const Loop& inner = loops.back();
  std::byte* const first = FirstElement(memory, part, element_bytes);
  ForEachRow(loops, [&](int64_t in_memory, int64_t in_image) {
    if (inner.stride_a == 1) {
      run(in_image * bytes, first + in_memory * bytes, inner.length * bytes);
      return;
    }
    for (int64_t i = 0; i < inner.length; ++i) {
      run((in_image + i * inner.stride_b) * bytes, first + (in_memory + i * inner.stride_a) * bytes,
          bytes);
    }
  });
}

void CopyBox(const StridedMemory& from, const StridedMemory& to, const Box& part,
             uint64_t element_bytes) {
  if (Volume(part) == 0) return;
  const int64_t bytes = static_cast<int64_t>(element_bytes);
  const Loops loops = MergedLoops(part.lengths, from.strides, to.strides);
  const std::byte* const source = FirstElement(from, part, element_bytes);
  std::byte* const target = FirstElement(to, part, element_bytes);
  ForEachRow(loops, [&](int64_t in_source, int64_t in_target) {
    CopyRow(loops.back(), source + in_source * bytes, target + in_target * bytes, bytes);
  });
}

uint64_t ScatterWindow(std::span<const std::byte> window, const Box& piece, int64_t first_element,
                       uint64_t element_bytes, const StridedMemory& memory) {
  // The window is at most 2n-1 boxes of the piece, each dense in the window.
  uint64_t window_offset = 0;
  uint64_t copied_bytes = 0;
  const int64_t elements = static_cast<int64_t>(window.size() / element_bytes);
  for (Box& box : FlatRangeToBoxes(piece.lengths, first_element, elements)) {
    for (int d = 0; d < piece.dimensions(); ++d) box.offsets[d] += piece.offsets[d];
    const uint64_t box_bytes = Volume(box) * element_bytes;
    if (const std::optional<Box> part = Intersect(box, memory.box)) {
      StridedMemory source;
      // Only read from: CopyBox's first argument.
      source.data = const_cast<std::byte*>(window.data()) + window_offset;
      source.strides = DenseStrides(box.lengths);
      source.box = std::move(box);
      CopyBox(source, memory, *part, element_bytes);
      copied_bytes += Volume(*part) * element_bytes;
    }
    window_offset += box_bytes;
  }
  return copied_bytes;
}

namespace {

// Appends the ranges of one box. From the innermost dimension out, steps whose gap is
// too small to be cut out become one run; what is left is looped over.
void AppendRanges(const Box& piece, const Box& wanted, int64_t min_gap,
                  std::vector<ElementRange>* ranges) {
  if (Volume(wanted) == 0) return;
  const Extents strides = DenseStrides(piece.lengths);
  int64_t first = 0;
  int64_t run = 1;
  Loops outer;
  for (int d = piece.dimensions(); d-- > 0;) {
    first += (wanted.offsets[d] - piece.offsets[d]) * strides[d];
    if (wanted.lengths[d] == 1) continue;
    if (outer.empty() && strides[d] - run < min_gap) {
      run += (wanted.lengths[d] - 1) * strides[d];
    } else {
      outer.push_back(Loop{wanted.lengths[d], strides[d], 0});
    }
  }
  std::reverse(outer.begin(), outer.end());
  outer.push_back(Loop{1, 1, 0});
  ForEachRow(outer, [&](int64_t at, int64_t) {
    ranges->push_back(ElementRange{first + at, first + at + run});
  });
}

}  // namespace

std::vector<ElementRange> WantedRanges(const Box& piece, std::span<const Box> wanted,
                                       int64_t min_gap_elements) {
  const int64_t min_gap = std::max<int64_t>(min_gap_elements, 1);
  std::vector<ElementRange> ranges;
  for (const Box& box : wanted) AppendRanges(piece, box, min_gap, &ranges);
  std::sort(ranges.begin(), ranges.end(),
            [](const ElementRange& a, const ElementRange& b) { return a.first < b.first; });
  size_t kept = 0;
  for (const ElementRange& range : ranges) {
    if (kept > 0 && range.first - ranges[kept - 1].end < min_gap) {
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    } else {
      ranges[kept++] = range;
    }
  }
  ranges.resize(kept);
  return ranges;
}

}  // namespace ckptd
