#include "storage/layout/box_copy.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tests/catch.h"
#include "tests/property.h"
#include "tests/storage/layout/marks.h"

namespace ckptd {
namespace {

// Memory for a box, with gaps and dimensions in any order of strides, some reversed.
struct OwnedMemory {
  std::vector<std::byte> bytes;
  StridedMemory memory;
};

OwnedMemory AnyMemory(const Box& box, uint64_t element_bytes) {
  OwnedMemory owned;
  std::vector<int> order(box.dimensions());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[AnyBetween(0, i)]);
  }
  Extents strides(box.dimensions(), 0);
  int64_t span = 1;
  int64_t first = 0;
  for (const int d : order) {
    strides[d] = span;
    span *= box.lengths[d] + AnyBetween(0, 2);
    span = std::max<int64_t>(span, 1);
    if (AnyBetween(0, 4) == 0 && box.lengths[d] > 0) {  // reversed
      first += strides[d] * (box.lengths[d] - 1);
      strides[d] = -strides[d];
    }
  }
  owned.bytes.assign(span * element_bytes, std::byte{0xEE});
  owned.memory = StridedMemory{owned.bytes.data() + first * element_bytes, box, strides};
  return owned;
}

std::byte* ElementAt(const StridedMemory& memory, const Extents& index, uint64_t element_bytes) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) {
    at += (index[d] - memory.box.offsets[d]) * memory.strides[d];
  }
  return memory.data + at * static_cast<int64_t>(element_bytes);
}

uint64_t AnyElementBytes() { return *rc::gen::element<uint64_t>(1, 2, 3, 4, 8, 16); }

// Bytes that tell elements and their bytes apart.
std::vector<std::byte> Numbered(uint64_t bytes) {
  std::vector<std::byte> data(bytes);
  for (uint64_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 131 + (i >> 8) * 17);
  return data;
}

TEST_CASE("the runs of a part are its elements, in row-major order") {
  CHECK(Holds("runs", [] {
    const uint64_t element_bytes = AnyElementBytes();
    const Extents shape = AnyShape();
    const Box box = AnyBoxIn(WholeBox(shape));
    const Box part = AnyBoxIn(box);
    const OwnedMemory owned = AnyMemory(box, element_bytes);
    std::vector<std::byte*> elements;
    uint64_t expected_offset = 0;
    ForEachRun(owned.memory, part, element_bytes,
               [&](uint64_t offset, std::byte* pointer, uint64_t length) {
                 RC_ASSERT(offset == expected_offset);
                 expected_offset += length;
                 for (uint64_t i = 0; i < length; i += element_bytes) {
                   elements.push_back(pointer + i);
                 }
               });
    std::vector<std::byte*> wanted;
    ForEachIndex(part, [&](const Extents& index) {
      wanted.push_back(ElementAt(owned.memory, index, element_bytes));
    });
    RC_ASSERT(elements == wanted);
  }));
}

TEST_CASE("a dense part is one run, and a transposed one a run per element") {
  std::vector<std::byte> bytes(size_t{2} * 3 * 4);
  const Box box{{0, 0, 0}, {2, 3, 4}};
  int runs = 0;
  const auto count = [&](uint64_t, std::byte*, uint64_t) { ++runs; };
  ForEachRun(StridedMemory{bytes.data(), box, {12, 4, 1}}, box, 1, count);
  CHECK(runs == 1);
  runs = 0;
  ForEachRun(StridedMemory{bytes.data(), box, {12, 4, 1}}, Box{{0, 1, 0}, {2, 2, 4}}, 1, count);
  CHECK(runs == 2);
  runs = 0;
  ForEachRun(StridedMemory{bytes.data(), box, {1, 2, 6}}, box, 1, count);
  CHECK(runs == 24);
}

TEST_CASE("an expanded tensor, of stride zero, gives its one element again and again") {
  std::byte element{7};
  std::vector<std::byte*> pointers;
  ForEachRun(StridedMemory{&element, Box{{0}, {3}}, {0}}, Box{{0}, {3}}, 1,
             [&](uint64_t, std::byte* pointer, uint64_t) { pointers.push_back(pointer); });
  CHECK(pointers == std::vector<std::byte*>(3, &element));
}

TEST_CASE("rows of a dense piece go to rows with gaps between them") {
  const std::vector<std::byte> image = Numbered(6);
  std::vector<std::byte> memory(8);
  const Box box{{0, 0}, {2, 3}};
  CHECK(ScatterWindow(image, box, 0, 1, StridedMemory{memory.data(), box, {4, 1}}) == 6);
  const std::vector<std::byte> expected = {image[0], image[1], image[2], std::byte{},
                                           image[3], image[4], image[5], std::byte{}};
  CHECK(memory == expected);
}

TEST_CASE("windows of a piece scatter exactly the elements that the memory wants") {
  CHECK(Holds("scatter", [] {
    const uint64_t element_bytes = AnyElementBytes();
    const Extents shape = AnyShape();
    const Box piece = AnyBoxIn(WholeBox(shape));
    const Box box = AnyBoxIn(WholeBox(shape));
    OwnedMemory owned = AnyMemory(box, element_bytes);
    std::vector<std::byte> expected = owned.bytes;
    const std::vector<std::byte> image = Numbered(Volume(piece) * element_bytes);

    uint64_t place = 0;
    uint64_t wanted_bytes = 0;
    ForEachIndex(piece, [&](const Extents& index) {
      if (Contains(box, Box{index, Extents(index.size(), 1)})) {
        const auto at = ElementAt(owned.memory, index, element_bytes) - owned.bytes.data();
        std::memcpy(expected.data() + at, image.data() + place, element_bytes);
        wanted_bytes += element_bytes;
      }
      place += element_bytes;
    });

    const int64_t window_elements = AnyBetween(1, 40);
    uint64_t copied = 0;
    for (int64_t first = 0; first < Volume(piece); first += window_elements) {
      const int64_t count = std::min(window_elements, Volume(piece) - first);
      const std::span<const std::byte> window(image.data() + first * element_bytes,
                                              count * element_bytes);
      copied += ScatterWindow(window, piece, first, element_bytes, owned.memory);
    }
    RC_ASSERT(owned.bytes == expected);
    RC_ASSERT(copied == wanted_bytes);
  }));
}

TEST_CASE("wanted ranges hold all that is wanted, and no gap that should be cut out") {
  CHECK(Holds("wanted ranges", [] {
    const Box piece = AnyBoxIn(WholeBox(AnyShape()));
    std::vector<Box> wanted(AnyBetween(0, 4));
    for (Box& box : wanted) box = AnyBoxIn(piece);
    const int64_t min_gap = AnyBetween(1, 12);

    Box in_piece = piece;
    std::fill(in_piece.offsets.begin(), in_piece.offsets.end(), 0);
    std::vector<Box> moved = wanted;
    for (Box& box : moved) {
      for (int d = 0; d < box.dimensions(); ++d) box.offsets[d] -= piece.offsets[d];
    }
    const std::vector<int> marks = CountMarks(in_piece.lengths, moved);
    // Cut greedily along the flattening.
    std::vector<ElementRange> expected;
    for (int64_t i = 0; i < static_cast<int64_t>(marks.size()); ++i) {
      if (marks[i] == 0) continue;
      if (!expected.empty() && i - expected.back().end < min_gap) {
        expected.back().end = i + 1;
      } else {
        expected.push_back(ElementRange{i, i + 1});
      }
    }
    RC_ASSERT(WantedRanges(piece, wanted, min_gap) == expected);
  }));
}

TEST_CASE("a column of a tall piece is one range when its gaps are too small to cut out") {
  const Box piece{{0, 0}, {int64_t{1} << 40, 1000}};
  const std::vector<Box> column = {Box{{0, 3}, {int64_t{1} << 40, 1}}};
  const int64_t rows = int64_t{1} << 40;
  CHECK(WantedRanges(piece, column, 1000) == std::vector<ElementRange>{{3, (rows - 1) * 1000 + 4}});
}

}  // namespace
}  // namespace ckptd
