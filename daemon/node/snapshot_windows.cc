#include "daemon/node/snapshot_windows.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/node/admission.h"
#include "daemon/node/limits.h"

namespace ckptd {
namespace {

// Below that, most of the time would go into calls and small writes.
constexpr uint64_t kSmallestWindowBytes = uint64_t{256} << 10;

absl::Status CheckTotal(std::span<const uint64_t> image_bytes) {
  uint64_t total = 0;
  for (uint64_t bytes : image_bytes) {
    total += std::min(bytes, std::numeric_limits<uint64_t>::max() - total);
  }
  if (total <= kMostImageBytesPerSave) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the ", image_bytes.size(), " ranks of this node write ", BytesForPeople(total),
                   " in one save, and a node takes at most ",
                   BytesForPeople(kMostImageBytesPerSave), ": spread the state over more nodes"));
}

// What the ranks take with two windows of this size each: no more than their images.
uint64_t TakenBy(std::span<const uint64_t> images, uint64_t window_bytes) {
  uint64_t taken = 0;
  for (uint64_t bytes : images) taken += std::min(bytes, 2 * window_bytes);
  return taken;
}

// The largest window for which TakenBy is within `left`, which doesn't hold all images.
uint64_t LargestWindow(std::vector<uint64_t> images, uint64_t left) {
  std::sort(images.begin(), images.end());
  size_t ranks = images.size();
  for (uint64_t bytes : images) {
    if (bytes > left / ranks) break;
    left -= bytes;
    --ranks;
  }
  return ranks == 0 ? 0 : RoundDown(left / (2 * ranks), kExtentAlignmentBytes);
}

}  // namespace

absl::StatusOr<SnapshotWindows> PlanWindows(std::span<const uint64_t> image_bytes,
                                            uint64_t small_bytes, uint64_t arena_bytes) {
  if (absl::Status status = CheckTotal(image_bytes); !status.ok()) return status;
  std::vector<uint64_t> images;
  uint64_t needed = small_bytes;
  for (uint64_t bytes : image_bytes) {
    images.push_back(RoundUp(bytes, kExtentAlignmentBytes));
    needed += images.back();
  }
  if (needed <= arena_bytes) return SnapshotWindows{.expected_bytes = needed};
  const uint64_t left = arena_bytes > small_bytes ? arena_bytes - small_bytes : 0;
  const uint64_t window_bytes = LargestWindow(images, left);
  if (window_bytes < kSmallestWindowBytes) {
    const uint64_t least = small_bytes + TakenBy(images, kSmallestWindowBytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the ", images.size(), " ranks of this node need at least ", BytesForPeople(least),
        " of staging memory, and the arena has ", BytesForPeople(arena_bytes),
        " in all: start the daemon with --arena-bytes=", least, " or more (",
        BytesForPeople(needed), " hold all of this state)"));
  }
  return SnapshotWindows{.window_bytes = window_bytes,
                         .expected_bytes = small_bytes + TakenBy(images, window_bytes)};
}

}  // namespace ckptd
