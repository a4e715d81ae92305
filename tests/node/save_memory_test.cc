#include "daemon/node/save_memory.h"

#include "tests/catch.h"

namespace ckptd {
namespace {

CheckedLayoutPtr LayoutOf(const std::string& fingerprint, size_t bytes) {
  auto layout = std::make_shared<CheckedLayout>();
  layout->fingerprint = fingerprint;
  layout->serialized = std::string(bytes, 'l');
  return layout;
}

WorldView WorldOf(const std::string& job, uint64_t epoch, uint32_t rank = 0) {
  return {.job = job, .epoch = epoch, .rank = rank};
}

TEST_CASE("invariant 4: the layouts of all jobs together stay within a bound") {
  SaveMemory memory(/*most_layout_bytes=*/100);
  REQUIRE(memory.AddLayout(WorldOf("a", 1), 1, LayoutOf("x", 60)).ok());
  const absl::Status refused = memory.AddLayout(WorldOf("b", 1), 2, LayoutOf("y", 60));
  CHECK(absl::IsResourceExhausted(refused));
  CHECK(memory.FindLayout(WorldOf("a", 1), "x") != nullptr);
  memory.SessionEnded(1);
  CHECK(memory.FindLayout(WorldOf("a", 1), "x") == nullptr);
  CHECK(memory.AddLayout(WorldOf("b", 1), 2, LayoutOf("y", 60)).ok());
}

TEST_CASE("a rank's newest layouts are kept, the oldest goes") {
  SaveMemory memory;
  for (const char* name : {"one", "two", "three"}) {
    REQUIRE(memory.AddLayout(WorldOf("a", 1), 1, LayoutOf(name, 10)).ok());
  }
  CHECK(memory.FindLayout(WorldOf("a", 1), "one") == nullptr);
  CHECK(memory.FindLayout(WorldOf("a", 1), "two") != nullptr);
  CHECK(memory.FindLayout(WorldOf("a", 1), "three") != nullptr);
  CHECK(memory.FindLayout(WorldOf("a", 1, 1), "three") == nullptr);
}

TEST_CASE("a newer epoch's save forgets the older ones of its job only") {
  SaveMemory memory;
  memory.UseSaveNumber(WorldOf("a", 1), 1, 9);
  memory.UseSaveNumber(WorldOf("b", 1), 2, 9);
  memory.ForgetOlderEpochs("a", 2);
  CHECK(memory.CheckSaveNumber(WorldOf("a", 1), 1).ok());
  CHECK_FALSE(memory.CheckSaveNumber(WorldOf("b", 1), 9).ok());
  CHECK(memory.CheckSaveNumber(WorldOf("b", 1), 10).ok());
}

}  // namespace
}  // namespace ckptd
