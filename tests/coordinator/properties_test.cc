// What holds of load plans and of rounds whatever comes in, in whatever order.
#include <algorithm>
#include <array>
#include <map>

#include "daemon/coordinator/fingerprint.h"
#include "daemon/coordinator/load_planner.h"
#include "daemon/coordinator/save_round.h"
#include "tests/catch.h"
#include "tests/coordinator/layouts.h"
#include "tests/property.h"

namespace ckptd {
namespace {

constexpr uint64_t kRows = 7;
constexpr uint64_t kColumns = 5;

// Cuts 0..length at up to two random places: first and one-past-last of each part.
std::vector<std::pair<uint64_t, uint64_t>> Cut(uint64_t length) {
  const uint64_t a = *rc::gen::inRange<uint64_t>(0, length + 1);
  const uint64_t b = *rc::gen::inRange<uint64_t>(a, length + 1);
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  for (auto [first, end] : {std::pair(uint64_t{0}, a), std::pair(a, b), std::pair(b, length)}) {
    if (first < end) parts.emplace_back(first, end);
  }
  return parts;
}

SavedState SavedGrid() {
  SavedState saved;
  saved.record.mutable_summary()->set_world_size(1);
  saved.record.add_files()->set_path("step-1/data-e1s1-a-0.safetensors");
  v1::TensorEntry& w = *saved.entries["w"].mutable_tensor();
  w.set_name("w");
  w.set_data_type(v1::DATA_TYPE_F32);
  w.add_shape(kRows);
  w.add_shape(kColumns);
  const auto columns = Cut(kColumns);
  for (auto [row, row_end] : Cut(kRows)) {
    for (auto [column, column_end] : columns) {
      v1::Piece* piece = w.add_pieces();
      piece->add_offsets(row);
      piece->add_offsets(column);
      piece->add_lengths(row_end - row);
      piece->add_lengths(column_end - column);
    }
  }
  saved.names.add_names("w");
  return saved;
}

v1::Layout RandomWish() {
  v1::Layout layout;
  const int shards = *rc::gen::inRange(0, 4);
  for (int i = 0; i < shards; ++i) {
    const uint64_t row = *rc::gen::inRange<uint64_t>(0, kRows + 1);
    const uint64_t column = *rc::gen::inRange<uint64_t>(0, kColumns + 1);
    const uint64_t rows = *rc::gen::inRange<uint64_t>(0, kRows - row + 1);
    const uint64_t columns = *rc::gen::inRange<uint64_t>(0, kColumns - column + 1);
    *layout.add_shards() = MakeShard("w", {kRows, kColumns}, {row, column}, {rows, columns});
  }
  return layout;
}

bool Includes(const auto& offsets, const auto& lengths, uint64_t row, uint64_t column) {
  return row >= static_cast<uint64_t>(offsets[0]) &&
         row < static_cast<uint64_t>(offsets[0] + lengths[0]) &&
         column >= static_cast<uint64_t>(offsets[1]) &&
         column < static_cast<uint64_t>(offsets[1] + lengths[1]);
}

// (rank, shard, row, column) -> how often some piece with that target holds it.
std::map<std::array<uint64_t, 4>, int> Delivered(const std::vector<v1::PlanLoadResponse>& responses,
                                                 const std::map<uint32_t, v1::Layout>& wishes) {
  std::map<std::array<uint64_t, 4>, int> delivered;
  for (const v1::PlanLoadResponse& response : responses) {
    for (const v1::WantedPiece& wanted : response.pieces()) {
      for (const v1::PieceTarget& target : wanted.targets()) {
        const v1::Shard& shard = wishes.at(target.rank()).shards(static_cast<int>(target.shard()));
        for (uint64_t row = 0; row < kRows; ++row) {
          for (uint64_t column = 0; column < kColumns; ++column) {
            if (Includes(wanted.piece().offsets(), wanted.piece().lengths(), row, column) &&
                Includes(shard.offsets(), shard.lengths(), row, column)) {
              ++delivered[{target.rank(), target.shard(), row, column}];
            }
          }
        }
      }
    }
  }
  return delivered;
}

std::map<std::array<uint64_t, 4>, int> Wanted(const std::map<uint32_t, v1::Layout>& wishes) {
  std::map<std::array<uint64_t, 4>, int> wanted;
  for (const auto& [rank, layout] : wishes) {
    for (int shard = 0; shard < layout.shards_size(); ++shard) {
      for (uint64_t row = 0; row < kRows; ++row) {
        for (uint64_t column = 0; column < kColumns; ++column) {
          if (Includes(layout.shards(shard).offsets(), layout.shards(shard).lengths(), row,
                       column)) {
            wanted[{rank, static_cast<uint64_t>(shard), row, column}] = 1;
          }
        }
      }
    }
  }
  return wanted;
}

TEST_CASE("every element that a rank wants is delivered once, no piece twice to a node") {
  const bool holds = Holds("load plans", [] {
    const SavedState saved = SavedGrid();
    std::map<uint32_t, v1::Layout> wishes;
    std::vector<v1::PlanLoadRequest> requests(2);
    std::vector<uint32_t> ranks = {0, 1, 2, 3};
    for (uint32_t rank : ranks) wishes[rank] = RandomWish();
    std::vector<v1::PlanLoadRequest> backwards(2);
    for (auto* given : {&requests, &backwards}) {
      for (uint32_t rank : ranks) {
        v1::PlanLoadRequest& request = (*given)[rank % 2];
        request.mutable_options()->set_allow_extra(true);
        v1::RankWant* want = request.add_ranks();
        want->set_rank(rank);
        *want->mutable_layout() = wishes.at(rank);
      }
      std::reverse(ranks.begin(), ranks.end());
    }
    const v1::PlanLoadRequest* forward_order[] = {&requests[0], &requests[1]};
    const v1::PlanLoadRequest* backward_order[] = {&backwards[1], &backwards[0]};
    const auto plan = PlanLoad(saved, forward_order, 4);
    const auto other = PlanLoad(saved, backward_order, 4);
    RC_ASSERT(plan.ok() && other.ok());
    RC_ASSERT(Delivered(*plan, wishes) == Wanted(wishes));
    RC_ASSERT(Delivered(*other, wishes) == Wanted(wishes));
    for (const v1::PlanLoadResponse& response : *plan) {
      std::set<std::string> boxes;
      for (const v1::WantedPiece& wanted : response.pieces()) {
        RC_ASSERT(!wanted.targets().empty());
        RC_ASSERT(boxes.insert(wanted.piece().SerializeAsString()).second);
      }
    }
  });
  CHECK(holds);
}

constexpr uint32_t kNodes = 4;

std::string NodeName(uint32_t rank) { return std::string(1, static_cast<char>('a' + rank)); }

std::shared_ptr<const World> WorldOfNodes() {
  v1::WorldRecord record;
  record.set_epoch(1);
  for (uint32_t rank = 0; rank < kNodes; ++rank) record.add_members()->set_node(NodeName(rank));
  return MakeWorld(record);
}

// One node's report of one kind, 0 to 2: planned, staged, committed.
absl::Status Give(SaveRound& round, uint32_t rank, int kind, const std::string& plan_id) {
  const std::string layout = MakeLayout({}, {"v" + NodeName(rank)}).SerializeAsString();
  if (kind == 0) {
    v1::PlanSaveRequest request;
    request.set_node(NodeName(rank));
    v1::RankLayout* given = request.add_ranks();
    given->set_rank(rank);
    given->set_layout(layout);
    given->set_fingerprint(Sha256(layout));
    return round.GiveLayouts(request);
  }
  if (kind == 1) {
    v1::ReportStagedRequest request;
    request.set_node(NodeName(rank));
    request.set_plan_id(plan_id);
    v1::RankFingerprint* given = request.add_ranks();
    given->set_rank(rank);
    given->set_fingerprint(Sha256(layout));
    return round.Staged(request);
  }
  v1::CommitSaveRequest request;
  request.set_node(NodeName(rank));
  request.set_plan_id(plan_id);
  v1::RankLayout* given = request.add_ranks();
  given->set_rank(rank);
  given->set_fingerprint(Sha256(layout));
  given->set_layout(layout);
  return round.Committed(request);
}

TEST_CASE("any order and repetition of reports ends in the same reports for the manifest") {
  std::vector<std::string> fingerprints;
  std::vector<std::string> layouts;
  for (uint32_t rank = 0; rank < kNodes; ++rank) {
    layouts.push_back(MakeLayout({}, {"v" + NodeName(rank)}).SerializeAsString());
    fingerprints.push_back(Sha256(layouts.back()));
  }
  const std::string plan_id = PlanId(fingerprints);
  auto ends = [](SaveRound& round) {
    std::string all;
    for (const v1::CommitSaveRequest& report : round.TakeReports()) {
      all += report.SerializeAsString() + "|";
    }
    return all;
  };
  SaveRound in_order("gpt", 40, {1, 1}, WorldOfNodes());
  for (uint32_t rank = 0; rank < kNodes; ++rank) {
    REQUIRE(Give(in_order, rank, 2, plan_id).ok());
  }
  const std::string expected = ends(in_order);
  const bool holds = Holds(
      "rounds in any order",
      [&] {
        SaveRound round("gpt", 40, {1, 1}, WorldOfNodes());
        auto given = *rc::gen::container<std::vector<std::pair<uint32_t, int>>>(
            rc::gen::pair(rc::gen::inRange<uint32_t>(0, kNodes), rc::gen::inRange(0, 3)));
        std::set<uint32_t> committed;
        for (auto [rank, kind] : given) {
          RC_ASSERT(Give(round, rank, kind, plan_id).ok());
          if (kind == 2) committed.insert(rank);
          RC_ASSERT(round.AllCommitted() == (committed.size() == kNodes));
        }
        for (uint32_t rank = 0; rank < kNodes; ++rank) {
          if (committed.count(rank) == 0) RC_ASSERT(Give(round, rank, 2, plan_id).ok());
        }
        RC_ASSERT(round.AllCommitted() && round.AllStaged());
        RC_ASSERT(round.CheckAgreement(nullptr).ok());
        RC_ASSERT(round.FingerprintPlanId() == plan_id);
        RC_ASSERT(round.TakeLayouts() == layouts);
        RC_ASSERT(ends(round) == expected);
      },
      /*divisor=*/4);
  CHECK(holds);
}

}  // namespace
}  // namespace ckptd
