// The oracle of the layout tests: a tensor small enough to mark every element, and
// generators of shapes, boxes and partitions of it.
#ifndef CKPTD_TESTS_STORAGE_LAYOUT_MARKS_H_
#define CKPTD_TESTS_STORAGE_LAYOUT_MARKS_H_

#include <vector>

#include "storage/layout/box.h"

namespace ckptd {

// Calls visit(index) for each element of the box, in row-major order.
template <typename Visit>
void ForEachIndex(const Box& box, const Visit& visit) {
  if (Volume(box) == 0) return;
  Extents index = box.offsets;
  while (true) {
    visit(index);
    int d = box.dimensions() - 1;
    for (; d >= 0; --d) {
      if (++index[d] < box.offsets[d] + box.lengths[d]) break;
      index[d] = box.offsets[d];
    }
    if (d < 0) return;
  }
}

// Place of an element in the row-major flattening.
int64_t FlatIndex(const Extents& shape, const Extents& index);

// How many of the boxes hold each element.
std::vector<int> CountMarks(const Extents& shape, const std::vector<Box>& boxes);

// What follows is to be called inside a RapidCheck property.

// From low up to but not high. Not scaled down for early cases, as RapidCheck does.
int64_t AnyBetween(int64_t low, int64_t high);
// At most four dimensions of 1 to 6, rarely (if min_length is 0) of 0.
Extents AnyShape(int64_t min_length = 0);
// Often as long as `outer` in some dimensions, rarely empty: so that two of them meet.
Box AnyBoxIn(const Box& outer);
// Disjoint boxes that cover the shape, in any order: also such as no straight cut
// divides.
std::vector<Box> AnyPartition(const Extents& shape);

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_LAYOUT_MARKS_H_
