#include "daemon/coordinator/save_planner.h"

#include <algorithm>
#include <map>

#include "tests/catch.h"
#include "tests/coordinator/layouts.h"
#include "tests/property.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

absl::StatusOr<SavePlan> PlanOf(const std::vector<v1::Layout>& layouts, bool backwards = false) {
  std::vector<std::string> bytes;
  bytes.reserve(layouts.size());
  for (const v1::Layout& layout : layouts) bytes.push_back(layout.SerializeAsString());
  std::vector<SerializedLayout> serialized;
  for (uint32_t rank = 0; rank < bytes.size(); ++rank) serialized.push_back({rank, bytes[rank]});
  if (backwards) std::reverse(serialized.begin(), serialized.end());
  auto index = StateIndex::Create(serialized);
  if (!index.ok()) return index.status();
  return PlanSave(*std::move(index));
}

std::string ErrorOf(const std::vector<v1::Layout>& layouts) {
  return std::string(PlanOf(layouts).status().message());
}

TEST_CASE("replicas are written once, each by the holder with the fewest bytes") {
  const v1::Layout both =
      MakeLayout({WholeShard("big", {100}), WholeShard("s1", {60}), WholeShard("s2", {40})});
  const auto plan = PlanOf({both, both});
  REQUIRE(plan.ok());
  CHECK(plan->pieces[0].size() == 1);
  CHECK(plan->pieces[1].size() == 2);
}

TEST_CASE("a large replica is split over its holders along the outermost dimension above one") {
  const v1::Layout both = MakeLayout({WholeShard("big", {1, 10, 1 << 20})});
  const auto plan = PlanOf({both, both});
  REQUIRE(plan.ok());
  REQUIRE(plan->pieces[0].size() == 1);
  REQUIRE(plan->pieces[1].size() == 1);
  CHECK(plan->pieces[0][0].box == Box{{0, 0, 0}, {1, 5, 1 << 20}});
  CHECK(plan->pieces[1][0].box == Box{{0, 5, 0}, {1, 5, 1 << 20}});
}

TEST_CASE("holes, conflicts and disagreements name tensor, box and ranks") {
  CHECK_THAT(ErrorOf({MakeLayout({MakeShard("w", {4}, {0}, {3})})}),
             Contains("w") && Contains("[3:4]"));
  CHECK_THAT(ErrorOf({MakeLayout({MakeShard("w", {4}, {0}, {3})}),
                      MakeLayout({MakeShard("w", {4}, {2}, {2})})}),
             Contains("box [0:3] of rank 0 overlaps box [2:4] of rank 1"));
  CHECK_THAT(ErrorOf({MakeLayout({WholeShard("w", {4})}), MakeLayout({WholeShard("w", {5})})}),
             Contains("F32[4] on rank 0") && Contains("F32[5] on rank 1"));
  CHECK_THAT(ErrorOf({MakeLayout({WholeShard("w", {4})}), MakeLayout({}, {"w"})}),
             Contains("a value on rank 1"));
}

TEST_CASE("a tied tensor is an alias when all ranks say so, else it is written") {
  const v1::Layout tied =
      MakeLayout({WholeShard("a", {8}), WholeShard("b", {8}, v1::DATA_TYPE_F32, "a")});
  const v1::Layout untied = MakeLayout({WholeShard("a", {8}), WholeShard("b", {8})});
  auto plan = PlanOf({tied, tied});
  REQUIRE(plan.ok());
  CHECK(plan->IsAlias(*plan->index.Find("b")));
  CHECK(plan->pieces[0].size() + plan->pieces[1].size() == 1);
  plan = PlanOf({tied, untied});
  REQUIRE(plan.ok());
  CHECK_FALSE(plan->IsAlias(*plan->index.Find("b")));
  CHECK(plan->pieces[0].size() + plan->pieces[1].size() == 2);
}

TEST_CASE("tensors that alias each other in a ring are written") {
  const auto plan = PlanOf({MakeLayout({WholeShard("a", {8}, v1::DATA_TYPE_F32, "b"),
                                        WholeShard("b", {8}, v1::DATA_TYPE_F32, "a")})});
  REQUIRE(plan.ok());
  CHECK(plan->pieces[0].size() == 2);
}

// Tensors cut into a random grid, every cell held by some ranks.
std::vector<v1::Layout> RandomLayouts() {
  const uint32_t ranks = *rc::gen::inRange(1, 6);
  std::vector<v1::Layout> layouts(ranks);
  const int tensors = *rc::gen::inRange(1, 4);
  for (int t = 0; t < tensors; ++t) {
    const uint64_t rows = *rc::gen::inRange(0, 8);
    const uint64_t columns = *rc::gen::inRange(1, 5);
    const uint64_t parts = *rc::gen::inRange(1, 4);
    for (uint64_t p = 0; p < parts; ++p) {
      const uint64_t first = rows * p / parts;
      const uint64_t end = rows * (p + 1) / parts;
      const uint32_t holder = *rc::gen::inRange<uint32_t>(0, ranks);
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        if (rank != holder && !*rc::gen::arbitrary<bool>()) continue;
        *layouts[rank].add_shards() =
            MakeShard("t" + std::to_string(t), {rows, columns}, {first, 0}, {end - first, columns});
      }
    }
  }
  return layouts;
}

TEST_CASE("every element is written exactly once, by a rank that holds it, in any order") {
  CHECK(Holds("save plans", [] {
    const std::vector<v1::Layout> layouts = RandomLayouts();
    const auto plan = PlanOf(layouts);
    const auto again = PlanOf(layouts, /*backwards=*/true);
    RC_ASSERT(plan.ok() && again.ok());
    std::map<std::pair<uint32_t, int64_t>, int> written;  // entry, element
    for (uint32_t rank = 0; rank < layouts.size(); ++rank) {
      RC_ASSERT(plan->pieces[rank].size() == again->pieces[rank].size());
      for (size_t i = 0; i < plan->pieces[rank].size(); ++i) {
        const PlannedBox& piece = plan->pieces[rank][i];
        RC_ASSERT(piece.box == again->pieces[rank][i].box);
        RC_ASSERT(piece.shard == again->pieces[rank][i].shard);
        const StateIndex::ShardRef ref{rank, piece.shard};
        const uint32_t entry = plan->index.EntryOfShard(ref);
        RC_ASSERT(Volume(piece.box) == 0 || Contains(plan->index.BoxOfShard(ref), piece.box));
        const int64_t columns = plan->index.entries()[entry].shape[1];
        for (int64_t r = 0; r < piece.box.lengths[0]; ++r) {
          for (int64_t c = 0; c < piece.box.lengths[1]; ++c) {
            ++written[{entry, (piece.box.offsets[0] + r) * columns + piece.box.offsets[1] + c}];
          }
        }
      }
    }
    int64_t elements = 0;
    for (const auto& entry : plan->index.entries()) elements += Volume(entry.shape);
    RC_ASSERT(static_cast<int64_t>(written.size()) == elements);
    for (const auto& [element, times] : written) RC_ASSERT(times == 1);
  }));
}

}  // namespace
}  // namespace ckptd
