#include "daemon/node/snapshot_windows.h"

#include "tests/catch.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST_CASE("images that fit together are leased whole, larger ones in two windows per rank") {
  const std::vector<uint64_t> images = {3 * kMiB, 4 * kMiB, 1};
  CHECK(PlanWindows(images, kMiB, 9 * kMiB)->window_bytes == 0);
  const absl::StatusOr<SnapshotWindows> windows = PlanWindows(images, kMiB, 7 * kMiB);
  REQUIRE(windows.ok());
  CHECK(windows->window_bytes == kMiB);
  CHECK(windows->expected_bytes == 7 * kMiB);
}

TEST_CASE("invariant 4: where even windows don't fit, the save is refused with the flag to set") {
  const std::vector<uint64_t> images(64, 4 * kMiB);
  const absl::Status status = PlanWindows(images, kMiB, 16 * kMiB).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()),
             Contains("33.0 MiB") && Contains("16.0 MiB") && Contains("--arena-bytes=34603008"));
}

}  // namespace
}  // namespace ckptd
