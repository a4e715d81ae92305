#include "daemon/node/extent_allocator.h"

#include <set>

#include "tests/catch.h"
#include "tests/property.h"

namespace ckptd {
namespace {

constexpr uint64_t kUnit = kExtentAlignmentBytes;

struct Held {
  std::string job;
  std::vector<Extent> extents;
};

void CheckDisjoint(const std::vector<Held>& held, const ExtentAllocator& allocator) {
  std::set<std::pair<uint32_t, uint64_t>> pages;
  uint64_t total = 0;
  for (const Held& one : held) {
    for (const Extent& extent : one.extents) {
      RC_ASSERT(allocator.owner(extent.slab) == one.job);
      for (uint64_t at = 0; at < extent.length; at += kUnit) {
        RC_ASSERT(pages.insert({extent.slab, extent.offset + at}).second);
        total += kUnit;
      }
    }
  }
  RC_ASSERT(total == allocator.used_bytes());
}

TEST_CASE("extents never overlap and a slab in use serves one job") {
  const bool ok = Holds("extents never overlap", [] {
    ExtentAllocator allocator({4 * kUnit, 8 * kUnit, 2 * kUnit});
    std::vector<Held> held;
    const int steps = *rc::gen::inRange(1, 40);
    for (int step = 0; step < steps; ++step) {
      if (!held.empty() && *rc::gen::arbitrary<bool>()) {
        const size_t index = *rc::gen::inRange<size_t>(0, held.size());
        allocator.Free(held[index].extents);
        held.erase(held.begin() + static_cast<long>(index));
      } else {
        const std::string job = *rc::gen::element<std::string>("a", "b", "c");
        const ExtentAsk ask{.bytes = *rc::gen::inRange<uint64_t>(1, 6 * kUnit),
                            .contiguous = *rc::gen::arbitrary<bool>()};
        const uint64_t before = allocator.used_bytes();
        std::optional<ExtentGrant> grant = allocator.Allocate(job, {&ask, 1});
        if (!grant.has_value()) {
          RC_ASSERT(allocator.used_bytes() == before);
          continue;
        }
        RC_ASSERT(!ask.contiguous || grant->blocks[0].size() == 1u);
        RC_ASSERT(allocator.used_bytes() - before == RoundUp(ask.bytes, kUnit));
        held.push_back({job, grant->blocks[0]});
      }
      CheckDisjoint(held, allocator);
    }
    for (const Held& one : held) allocator.Free(one.extents);
    const ExtentAsk all{.bytes = allocator.total_bytes()};
    RC_ASSERT(allocator.Allocate("d", {&all, 1}).has_value());
  });
  CHECK(ok);
}

TEST_CASE("invariant 7: a slab that served a job is made anew for another") {
  ExtentAllocator allocator({4 * kUnit});
  const ExtentAsk ask{.bytes = kUnit};
  std::optional<ExtentGrant> first = allocator.Allocate("a", {&ask, 1});
  REQUIRE(first.has_value());
  CHECK(first->renewed_slabs.empty());
  CHECK_FALSE(allocator.Allocate("b", {&ask, 1}).has_value());
  allocator.Free(first->blocks[0]);
  std::optional<ExtentGrant> again = allocator.Allocate("a", {&ask, 1});
  CHECK(again->renewed_slabs.empty());
  allocator.Free(again->blocks[0]);
  std::optional<ExtentGrant> other = allocator.Allocate("b", {&ask, 1});
  REQUIRE(other.has_value());
  CHECK(other->renewed_slabs == std::vector<uint32_t>{0});
}

}  // namespace
}  // namespace ckptd
