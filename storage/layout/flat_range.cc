#include <utility>

#include "storage/layout/box.h"

namespace ckptd {
namespace {

// Cuts flat ranges of one shape into boxes, from the outermost dimension inwards.
class FlatRangeCutter {
 public:
  explicit FlatRangeCutter(std::span<const int64_t> shape)
      : shape_(shape), row_elements_(shape.size(), 1), place_(shape.size(), 0) {
    for (size_t d = shape.size() - 1; d > 0; --d) {
      row_elements_[d - 1] = row_elements_[d] * shape[d];
    }
  }

  // Elements [first, end) of the block that place_[0..d) fixes.
  void Cut(size_t d, int64_t first, int64_t end) {
    const int64_t row = row_elements_[d];
    int64_t whole_begin = first / row;
    const int64_t whole_end = end / row;
    const int64_t head = first % row;
    const int64_t tail = end % row;
    if (head != 0) {
      place_[d] = whole_begin;
      if (whole_begin == whole_end) return Cut(d + 1, head, tail);
      Cut(d + 1, head, row);
      ++whole_begin;
    }
    if (whole_begin < whole_end) AddRows(d, whole_begin, whole_end);
    if (tail != 0) {
      place_[d] = whole_end;
      Cut(d + 1, 0, tail);
    }
  }

  std::vector<Box> TakeBoxes() { return std::move(boxes_); }

 private:
  void AddRows(size_t d, int64_t begin, int64_t end) {
    Box box = WholeBox(shape_);
    for (size_t outer = 0; outer < d; ++outer) {
      box.offsets[outer] = place_[outer];
      box.lengths[outer] = 1;
    }
    box.offsets[d] = begin;
    box.lengths[d] = end - begin;
    boxes_.push_back(std::move(box));
  }

  const std::span<const int64_t> shape_;
  Extents row_elements_;  // elements in one step of each dimension
  Extents place_;
  std::vector<Box> boxes_;
};

}  // namespace

std::vector<Box> FlatRangeToBoxes(std::span<const int64_t> shape, int64_t first, int64_t count) {
  if (count <= 0) return {};
  if (shape.empty()) return {WholeBox(shape)};
  FlatRangeCutter cutter(shape);
  cutter.Cut(0, first, first + count);
  return cutter.TakeBoxes();
}

}  // namespace ckptd
