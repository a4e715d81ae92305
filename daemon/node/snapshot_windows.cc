#include "daemon/node/snapshot_windows.h"

#include "absl/strings/str_cat.h"
#include "daemon/node/admission.h"

namespace ckptd {
namespace {

// Below that, most of the time would go into calls and small writes.
constexpr uint64_t kSmallestWindowBytes = uint64_t{256} << 10;

}  // namespace

absl::StatusOr<SnapshotWindows> PlanWindows(std::span<const uint64_t> image_bytes,
                                            uint64_t small_bytes, uint64_t arena_bytes) {
  uint64_t needed = small_bytes;
  for (uint64_t bytes : image_bytes) needed += RoundUp(bytes, kExtentAlignmentBytes);
  if (needed <= arena_bytes) return SnapshotWindows{.expected_bytes = needed};
  const uint64_t windows = 2 * image_bytes.size();
  const uint64_t left = arena_bytes > small_bytes ? arena_bytes - small_bytes : 0;
  const uint64_t window_bytes = windows == 0 ? 0 : RoundDown(left / windows, kExtentAlignmentBytes);
  if (window_bytes < kSmallestWindowBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the ", image_bytes.size(), " ranks of this node need at least ",
                     BytesForPeople(small_bytes + windows * kSmallestWindowBytes),
                     " of staging memory, and the arena has ", BytesForPeople(arena_bytes),
                     " in all: start the daemon with --arena-bytes=",
                     small_bytes + windows * kSmallestWindowBytes, " or more (",
                     BytesForPeople(needed), " hold all of this state)"));
  }
  return SnapshotWindows{.window_bytes = window_bytes,
                         .expected_bytes = small_bytes + windows * window_bytes};
}

}  // namespace ckptd
