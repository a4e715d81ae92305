#include "daemon/coordinator/piece_index.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace ckptd {

PieceIndex::PieceIndex(std::vector<Box> pieces) : pieces_(std::move(pieces)) {
  order_.resize(pieces_.size());
  std::iota(order_.begin(), order_.end(), 0);
  const size_t dimensions = pieces_.empty() ? 0 : pieces_.front().lengths.size();
  if (dimensions == 0) return;
  size_t most = 0;
  for (size_t d = 0; d < dimensions; ++d) {
    std::set<int64_t> offsets;
    for (const Box& piece : pieces_) offsets.insert(piece.offsets[d]);
    if (offsets.size() > most) {
      most = offsets.size();
      dimension_ = d;
    }
  }
  for (const Box& piece : pieces_) longest_ = std::max(longest_, piece.lengths[dimension_]);
  std::stable_sort(order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) {
    return pieces_[a].offsets[dimension_] < pieces_[b].offsets[dimension_];
  });
}

std::vector<uint32_t> PieceIndex::Meeting(const Box& box) const {
  std::vector<uint32_t> meeting;
  auto first = order_.begin();
  auto last = order_.end();
  if (!box.lengths.empty()) {
    const int64_t begin = box.offsets[dimension_];
    const int64_t end = begin + box.lengths[dimension_];
    auto offset_below = [this](uint32_t piece, int64_t offset) {
      return pieces_[piece].offsets[dimension_] < offset;
    };
    first = std::lower_bound(order_.begin(), order_.end(), begin - longest_ + 1, offset_below);
    last = std::lower_bound(first, order_.end(), end, offset_below);
  }
  for (auto it = first; it != last; ++it) {
    if (Intersect(pieces_[*it], box).has_value()) meeting.push_back(*it);
  }
  std::sort(meeting.begin(), meeting.end());
  return meeting;
}

}  // namespace ckptd
