// How much of a rank's image lies in the arena at a time, where all images together are
// larger than the arena. Pure.
//
// Two windows per rank: one is written to storage while the trainer fills the other. What
// ranks of small images don't need of that is the others'.
#ifndef CKPTD_DAEMON_NODE_SNAPSHOT_WINDOWS_H_
#define CKPTD_DAEMON_NODE_SNAPSHOT_WINDOWS_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace ckptd {

struct SnapshotWindows {
  uint64_t window_bytes = 0;    // a multiple of 4 KiB; 0: all images fit
  uint64_t expected_bytes = 0;  // of the arena, at a time
};

// `image_bytes` of the ranks that have an image; `small_bytes` of what is leased beside
// them. RESOURCE_EXHAUSTED, with what to do, where windows would be too small to work, or the
// images are more than kMostImageBytesPerSave.
absl::StatusOr<SnapshotWindows> PlanWindows(std::span<const uint64_t> image_bytes,
                                            uint64_t small_bytes, uint64_t arena_bytes);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SNAPSHOT_WINDOWS_H_
