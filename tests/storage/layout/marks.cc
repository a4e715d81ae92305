#include "tests/storage/layout/marks.h"

#include <rapidcheck.h>

#include <algorithm>

namespace ckptd {
namespace {

// Grows a free element into a box, each dimension as far as all is free and chance
// allows.
Box GrowFrom(const Extents& shape, const Extents& index, const std::vector<int>& marks) {
  Box box{index, Extents(shape.size(), 1)};
  for (int d = box.dimensions() - 1; d >= 0; --d) {
    const int64_t wanted = AnyBetween(1, shape[d] - index[d] + 1);
    while (box.lengths[d] < wanted) {
      Box larger = box;
      ++larger.lengths[d];
      bool is_free = true;
      ForEachIndex(larger, [&](const Extents& at) {
        is_free &= marks[FlatIndex(shape, at)] == 0 || at == index;
      });
      if (!is_free) break;
      box = larger;
    }
  }
  return box;
}

}  // namespace

int64_t AnyBetween(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high));
}

int64_t FlatIndex(const Extents& shape, const Extents& index) {
  int64_t flat = 0;
  for (size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

std::vector<int> CountMarks(const Extents& shape, const std::vector<Box>& boxes) {
  std::vector<int> marks(Volume(shape), 0);
  for (const Box& box : boxes) {
    ForEachIndex(box, [&](const Extents& index) { ++marks[FlatIndex(shape, index)]; });
  }
  return marks;
}

Extents AnyShape(int64_t min_length) {
  Extents shape(AnyBetween(0, 5), 0);
  for (int64_t& length : shape) {
    length = min_length == 0 && AnyBetween(0, 20) == 19 ? 0 : AnyBetween(1, 7);
  }
  return shape;
}

Box AnyBoxIn(const Box& outer) {
  Box box = outer;
  for (int d = 0; d < outer.dimensions(); ++d) {
    if (outer.lengths[d] == 0 || AnyBetween(0, 3) == 0) continue;
    const int64_t skipped = AnyBetween(0, outer.lengths[d]);
    const int64_t left = outer.lengths[d] - skipped;
    box.offsets[d] += skipped;
    box.lengths[d] = AnyBetween(0, 20) == 19 ? 0 : AnyBetween(1, left + 1);
  }
  return box;
}

std::vector<Box> AnyPartition(const Extents& shape) {
  std::vector<Box> boxes;
  std::vector<int> marks(Volume(shape), 0);
  ForEachIndex(WholeBox(shape), [&](const Extents& index) {
    if (marks[FlatIndex(shape, index)] != 0) return;
    const Box box = GrowFrom(shape, index, marks);
    ForEachIndex(box, [&](const Extents& at) { ++marks[FlatIndex(shape, at)]; });
    boxes.insert(boxes.begin() + AnyBetween(0, boxes.size() + 1), box);
  });
  return boxes;
}

}  // namespace ckptd
