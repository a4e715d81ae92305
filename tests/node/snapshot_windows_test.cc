#include "daemon/node/snapshot_windows.h"

#include <algorithm>
#include <vector>

#include "daemon/node/extent_allocator.h"
#include "tests/catch.h"
#include "tests/property.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST_CASE("images that fit together are leased whole, larger ones in two windows per rank") {
  const std::vector<uint64_t> images = {3 * kMiB, 4 * kMiB};
  CHECK(PlanWindows(images, kMiB, 8 * kMiB)->window_bytes == 0);
  CHECK(PlanWindows(images, kMiB, 8 * kMiB)->expected_bytes == 8 * kMiB);
  const absl::StatusOr<SnapshotWindows> windows = PlanWindows(images, kMiB, 5 * kMiB);
  REQUIRE(windows.ok());
  CHECK(windows->window_bytes == kMiB);
  CHECK(windows->expected_bytes == 5 * kMiB);
}

TEST_CASE("ranks whose images are smaller than two windows leave the rest to the others") {
  const std::vector<uint64_t> images = {40 * kMiB, 1, 2 * kMiB - 5, 40 * kMiB};
  const absl::StatusOr<SnapshotWindows> windows =
      PlanWindows(images, kMiB, 15 * kMiB + kExtentAlignmentBytes);
  REQUIRE(windows.ok());
  CHECK(windows->window_bytes == 3 * kMiB);
  CHECK(windows->expected_bytes == 15 * kMiB + kExtentAlignmentBytes);
}

TEST_CASE("whatever the images: what is expected fits into the arena, and hardly more would") {
  const bool ok = Holds("snapshot windows", [] {
    const auto images = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<uint64_t>>(rc::gen::inRange<uint64_t>(1, 9 * kMiB)));
    const uint64_t small_bytes = *rc::gen::inRange<uint64_t>(0, 2 * kMiB);
    const uint64_t arena_bytes = *rc::gen::inRange<uint64_t>(kMiB, 32 * kMiB);
    const auto taken_by = [&](uint64_t window_bytes) {
      uint64_t taken = small_bytes;
      for (uint64_t bytes : images) {
        taken += std::min(RoundUp(bytes, kExtentAlignmentBytes), 2 * window_bytes);
      }
      return taken;
    };
    const absl::StatusOr<SnapshotWindows> windows = PlanWindows(images, small_bytes, arena_bytes);
    if (!windows.ok()) {
      RC_ASSERT(taken_by(kMiB / 4) > arena_bytes);
      return;
    }
    RC_ASSERT(windows->expected_bytes <= arena_bytes);
    if (windows->window_bytes == 0) {
      RC_ASSERT(windows->expected_bytes == taken_by(9 * kMiB));
      return;
    }
    RC_ASSERT(windows->window_bytes % kExtentAlignmentBytes == 0u);
    RC_ASSERT(windows->expected_bytes == taken_by(windows->window_bytes));
    RC_ASSERT(taken_by(windows->window_bytes + kExtentAlignmentBytes) > arena_bytes);
  });
  CHECK(ok);
}

TEST_CASE("invariant 4: where even windows don't fit, the save is refused with the flag to set") {
  const std::vector<uint64_t> images(64, 4 * kMiB);
  const absl::Status status = PlanWindows(images, kMiB, 16 * kMiB).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()),
             Contains("33.0 MiB") && Contains("16.0 MiB") && Contains("--arena-bytes=34603008"));
  CHECK(PlanWindows(images, kMiB, 34603008).ok());
}

TEST_CASE("invariant 4: a node takes no more than its limit in one save, however large its arena") {
  const uint64_t tib = uint64_t{1} << 40;
  CHECK(PlanWindows(std::vector<uint64_t>{tib, 3 * tib}, 0, kMiB).ok());
  const absl::Status status =
      PlanWindows(std::vector<uint64_t>{2 * tib, 3 * tib}, 0, kMiB).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()),
             Contains("5.0 TiB") && Contains("at most 4.0 TiB") && Contains("more nodes"));
  const std::vector<uint64_t> overflowing(4, uint64_t{1} << 63);
  CHECK(absl::IsResourceExhausted(PlanWindows(overflowing, 0, ~uint64_t{0}).status()));
}

}  // namespace
}  // namespace ckptd
