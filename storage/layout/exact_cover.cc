// How the check works. A region and the boxes that meet it are cut into smaller
// regions until each holds one box that fills it:
//   1. Clean cuts: sorted by where they begin in one dimension, the boxes fall
//      into groups that no box bridges. A grid is done after one such cut per
//      dimension, n log n in all. A gap between two groups is a hole.
//   2. Where clean cuts leave one group with most of the boxes (a pinwheel, a
//      spiral), the region is halved at the median beginning, and boxes that cross
//      the cut go to both sides. Volumes tell where to look: a half with more
//      elements in boxes than it has is where an overlap is, one with fewer has a
//      hole, and the other half needs no look. So input that is wrong costs no
//      more than input that is right.
// The depth is at most dimensions x log2(boxes).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "storage/layout/box.h"

namespace ckptd {
namespace {

// Wide enough for the volumes of all boxes, however they overlap.
using WideVolume = __int128;

struct Entry {
  int64_t begin = 0;  // in the dimension last sorted by
  size_t box = 0;     // index
};

struct Cut {
  int dimension = -1;
  int64_t at = 0;
  size_t larger_side = 0;  // boxes on the side that has more
};

class CoverCheck {
 public:
  explicit CoverCheck(std::span<const Box> boxes) : boxes_(boxes) {}

  // All entries meet the region, which is not empty. May reorder entries.
  absl::Status Check(const Box& region, std::span<Entry> entries,
                     int unsplittable_dimension) const {
    if (entries.empty()) return Hole(region);
    if (entries.size() == 1) return CheckOne(region, boxes_[entries[0].box]);
    for (int d = 0; d < region.dimensions(); ++d) {
      if (d == unsplittable_dimension) continue;
      SortByBegin(region, entries, d);
      if (LargestGroup(entries, d) <= entries.size() * 3 / 4) {
        return CheckGroups(region, entries, d);
      }
    }
    return CheckHalves(region, entries);
  }

 private:
  int64_t Begin(const Box& box, int d) const { return box.offsets[d]; }
  int64_t End(const Box& box, int d) const { return box.offsets[d] + box.lengths[d]; }

  static absl::Status Hole(const Box& hole) {
    return absl::FailedPreconditionError(
        absl::StrCat("no shard holds the elements ", ToString(hole)));
  }

  absl::Status Overlap(const Entry& a, const Entry& b) const {
    const Box& first = boxes_[std::min(a.box, b.box)];
    const Box& second = boxes_[std::max(a.box, b.box)];
    return absl::AlreadyExistsError(absl::StrCat("the shards ", ToString(first), " and ",
                                                 ToString(second), " overlap in ",
                                                 ToString(*Intersect(first, second))));
  }

  absl::Status CheckOne(const Box& region, const Box& box) const {
    for (int d = 0; d < region.dimensions(); ++d) {
      if (absl::Status status = CheckGap(region, d, Begin(region, d), Begin(box, d));
          !status.ok()) {
        return status;
      }
      if (absl::Status status = CheckGap(region, d, End(box, d), End(region, d)); !status.ok()) {
        return status;
      }
    }
    return absl::OkStatus();
  }

  // The slab [begin, end) of the region in dimension d has no box in it.
  static absl::Status CheckGap(const Box& region, int d, int64_t begin, int64_t end) {
    if (begin >= end) return absl::OkStatus();
    return Hole(Slab(region, d, begin, end));
  }

  static Box Slab(const Box& region, int d, int64_t begin, int64_t end) {
    Box slab = region;
    slab.offsets[d] = begin;
    slab.lengths[d] = end - begin;
    return slab;
  }

  void SortByBegin(const Box& region, std::span<Entry> entries, int d) const {
    for (Entry& entry : entries) {
      entry.begin = std::max(Begin(boxes_[entry.box], d), Begin(region, d));
    }
    const auto before = [](const Entry& a, const Entry& b) { return a.begin < b.begin; };
    if (!std::is_sorted(entries.begin(), entries.end(), before)) {
      std::sort(entries.begin(), entries.end(), before);
    }
  }

  // The end of the group that begins with entries[first]; *group_end is set to where
  // its boxes end.
  size_t GroupEnd(std::span<const Entry> entries, size_t first, int d, int64_t* group_end) const {
    *group_end = End(boxes_[entries[first].box], d);
    size_t next = first + 1;
    while (next < entries.size() && entries[next].begin < *group_end) {
      *group_end = std::max(*group_end, End(boxes_[entries[next].box], d));
      ++next;
    }
    return next;
  }

  size_t LargestGroup(std::span<const Entry> entries, int d) const {
    size_t largest = 0;
    int64_t group_end = 0;
    for (size_t first = 0; first < entries.size();) {
      const size_t next = GroupEnd(entries, first, d, &group_end);
      largest = std::max(largest, next - first);
      first = next;
    }
    return largest;
  }

  // Entries are sorted by d.
  absl::Status CheckGroups(const Box& region, std::span<Entry> entries, int d) const {
    const int64_t region_end = End(region, d);
    int64_t reached = Begin(region, d);
    for (size_t first = 0; first < entries.size();) {
      const int64_t begin = entries[first].begin;
      if (absl::Status status = CheckGap(region, d, reached, begin); !status.ok()) return status;
      const size_t next = GroupEnd(entries, first, d, &reached);
      reached = std::min(reached, region_end);
      const Box slab = Slab(region, d, begin, reached);
      // Checked in place: a group's order is its own.
      if (absl::Status status = Check(slab, entries.subspan(first, next - first), d);
          !status.ok()) {
        return status;
      }
      first = next;
    }
    return CheckGap(region, d, reached, region_end);
  }

  absl::Status CheckHalves(const Box& region, std::span<Entry> entries) const {
    const Cut cut = BestCut(region, entries);
    // Nothing begins inside: all boxes hold the region's first element.
    if (cut.dimension < 0) return Overlap(entries[0], entries[1]);

    const int d = cut.dimension;
    const Box lower = Slab(region, d, Begin(region, d), cut.at);
    const Box upper = Slab(region, d, cut.at, End(region, d));
    std::vector<Entry> in_lower;
    std::vector<Entry> in_upper;
    for (const Entry& entry : entries) {
      if (Begin(boxes_[entry.box], d) < cut.at) in_lower.push_back(entry);
      if (End(boxes_[entry.box], d) > cut.at) in_upper.push_back(entry);
    }
    // A half whose volume is wrong is where the error is.
    const WideVolume lower_excess = Excess(lower, in_lower);
    if (lower_excess != 0) return Check(lower, in_lower, -1);
    const WideVolume upper_excess = Excess(upper, in_upper);
    if (upper_excess != 0) return Check(upper, in_upper, -1);
    if (absl::Status status = Check(lower, in_lower, -1); !status.ok()) {
      return status;
    }
    return Check(upper, in_upper, -1);
  }

  // Elements in the boxes' parts inside the region, less the region's own.
  WideVolume Excess(const Box& region, std::span<const Entry> entries) const {
    WideVolume excess = -WideVolume{Volume(region)};
    for (const Entry& entry : entries) excess += Volume(*Intersect(region, boxes_[entry.box]));
    return excess;
  }

  // The median beginning inside the region, in the dimension where that divides best.
  Cut BestCut(const Box& region, std::span<const Entry> entries) const {
    Cut best;
    std::vector<int64_t> begins;
    for (int d = 0; d < region.dimensions(); ++d) {
      begins.clear();
      for (const Entry& entry : entries) {
        const int64_t begin = Begin(boxes_[entry.box], d);
        if (begin > Begin(region, d)) begins.push_back(begin);
      }
      if (begins.empty()) continue;
      const auto median = begins.begin() + begins.size() / 2;
      std::nth_element(begins.begin(), median, begins.end());
      const Cut cut{d, *median, LargerSide(entries, d, *median)};
      if (best.dimension < 0 || cut.larger_side < best.larger_side) best = cut;
    }
    return best;
  }

  size_t LargerSide(std::span<const Entry> entries, int d, int64_t at) const {
    size_t lower = 0;
    size_t upper = 0;
    for (const Entry& entry : entries) {
      lower += Begin(boxes_[entry.box], d) < at;
      upper += End(boxes_[entry.box], d) > at;
    }
    return std::max(lower, upper);
  }

  const std::span<const Box> boxes_;
};

}  // namespace

absl::Status CheckExactCover(std::span<const int64_t> shape, std::span<const Box> boxes) {
  std::vector<Entry> entries;
  entries.reserve(boxes.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (absl::Status status = ValidateBox(boxes[i], shape, 1); !status.ok()) return status;
    if (Volume(boxes[i]) > 0) entries.push_back(Entry{0, i});
  }
  if (Volume(shape) == 0) return absl::OkStatus();
  return CoverCheck(boxes).Check(WholeBox(shape), std::span<Entry>(entries), -1);
}

}  // namespace ckptd
