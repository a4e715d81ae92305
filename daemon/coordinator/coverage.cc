#include "daemon/coordinator/coverage.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace ckptd {

std::optional<std::pair<size_t, size_t>> FindOverlap(std::span<const Box> boxes) {
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto first = [&](size_t i) { return boxes[i].dimensions() == 0 ? 0 : boxes[i].offsets[0]; };
  auto end = [&](size_t i) {
    return boxes[i].dimensions() == 0 ? 1 : boxes[i].offsets[0] + boxes[i].lengths[0];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return first(a) < first(b); });
  std::vector<size_t> open;  // those that may still reach the current offset
  for (size_t i : order) {
    std::erase_if(open, [&](size_t other) { return end(other) <= first(i); });
    for (size_t other : open) {
      if (Intersect(boxes[other], boxes[i]).has_value()) return std::minmax(other, i);
    }
    open.push_back(i);
  }
  return std::nullopt;
}

}  // namespace ckptd
