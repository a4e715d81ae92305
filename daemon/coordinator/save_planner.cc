#include "daemon/coordinator/save_planner.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/alias_resolver.h"
#include "daemon/coordinator/coverage.h"
#include "daemon/coordinator/names.h"

namespace ckptd {
namespace {

// One distinct box and who holds it: the unit that is given to a writer.
struct Unit {
  uint64_t bytes = 0;
  uint32_t entry = 0;
  Box box;
  std::vector<StateIndex::ShardRef> holders;  // ascending positions, one per rank
};

bool BoxLess(const Box& a, const Box& b) {
  if (a.offsets != b.offsets) return a.offsets < b.offsets;
  return a.lengths < b.lengths;
}

// The shards of one entry, identical boxes together. Empty boxes count only where
// the tensor itself is empty, and then as one.
std::vector<Unit> GroupReplicas(const StateIndex& index, uint32_t entry) {
  const Extents& shape = index.entries()[entry].shape;
  const uint64_t element_bytes = ElementBytes(index.entries()[entry].data_type);
  const bool empty_tensor = Volume(shape) == 0;
  std::vector<std::pair<Box, StateIndex::ShardRef>> shards;
  for (StateIndex::ShardRef ref : index.ShardsOfEntry(entry)) {
    Box box = empty_tensor ? WholeBox(shape) : index.BoxOfShard(ref);
    if (empty_tensor || Volume(box) > 0) shards.emplace_back(std::move(box), ref);
  }
  // Stable: within a box the holders stay in order of position.
  std::stable_sort(shards.begin(), shards.end(),
                   [](const auto& a, const auto& b) { return BoxLess(a.first, b.first); });
  std::vector<Unit> units;
  for (auto& [box, ref] : shards) {
    if (units.empty() || units.back().box != box) {
      const uint64_t bytes = static_cast<uint64_t>(Volume(box)) * element_bytes;
      units.push_back({.bytes = bytes, .entry = entry, .box = std::move(box)});
    }
    auto& holders = units.back().holders;
    if (holders.empty() || holders.back().rank != ref.rank) holders.push_back(ref);
  }
  return units;
}

std::string RanksOf(const StateIndex& index, const Unit& unit) {
  std::vector<uint32_t> ranks;
  for (StateIndex::ShardRef ref : unit.holders) ranks.push_back(index.ranks()[ref.rank]);
  return RanksToString(ranks);
}

// Empty when the units cover the tensor exactly; else what is wrong.
std::string CheckUnits(const StateIndex& index, uint32_t entry, const std::vector<Unit>& units) {
  std::vector<Box> boxes;
  boxes.reserve(units.size());
  for (const Unit& unit : units) boxes.push_back(unit.box);
  const StateIndex::Entry& tensor = index.entries()[entry];
  const absl::Status covered = CheckExactCover(tensor.shape, boxes);
  if (covered.ok()) return "";
  if (const auto pair = FindOverlap(boxes); pair.has_value()) {
    const Unit& a = units[pair->first];
    const Unit& b = units[pair->second];
    return absl::StrCat("tensor ", tensor.name, ": box ", ToString(a.box), " of ",
                        RanksOf(index, a), " overlaps box ", ToString(b.box), " of ",
                        RanksOf(index, b), " without being its replica");
  }
  return absl::StrCat("tensor ", tensor.name, " of shape ", ShapeToString(tensor.shape), ": ",
                      covered.message());
}

class Assigner {
 public:
  explicit Assigner(SavePlan& plan) : plan_(plan), load_bytes_(plan.pieces.size(), 0) {}

  // What has one holder first, so that replicas even out what those left uneven;
  // of these the largest first.
  void AssignAll(std::vector<Unit>& units) {
    std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) {
      const bool a_single = a.holders.size() == 1;
      const bool b_single = b.holders.size() == 1;
      if (a_single != b_single) return a_single;
      return a.bytes > b.bytes;
    });
    for (Unit& unit : units) {
      if (unit.holders.size() > 1 && unit.bytes >= kSplitBytes) {
        AssignSplit(unit);
      } else {
        Give(LeastLoaded(unit), unit.box, unit.bytes);
      }
    }
    for (auto& pieces : plan_.pieces) {
      std::sort(pieces.begin(), pieces.end(), [](const PlannedBox& a, const PlannedBox& b) {
        return a.shard != b.shard ? a.shard < b.shard : BoxLess(a.box, b.box);
      });
    }
  }

 private:
  bool LessLoaded(StateIndex::ShardRef a, StateIndex::ShardRef b) const {
    const uint64_t a_bytes = load_bytes_[a.rank];
    const uint64_t b_bytes = load_bytes_[b.rank];
    return a_bytes != b_bytes ? a_bytes < b_bytes : a.rank < b.rank;
  }

  StateIndex::ShardRef LeastLoaded(const Unit& unit) const {
    return *std::min_element(unit.holders.begin(), unit.holders.end(),
                             [this](const auto& a, const auto& b) { return LessLoaded(a, b); });
  }

  void Give(StateIndex::ShardRef holder, Box box, uint64_t bytes) {
    plan_.pieces[holder.rank].push_back({.shard = holder.shard, .box = std::move(box)});
    load_bytes_[holder.rank] += bytes;
  }

  // Nearly equal parts, one to each of the least loaded holders.
  void AssignSplit(Unit& unit) {
    auto longer = std::find_if(unit.box.lengths.begin(), unit.box.lengths.end(),
                               [](int64_t length) { return length > 1; });
    const size_t dimension = longer - unit.box.lengths.begin();
    const uint64_t length = *longer;
    const uint64_t parts = std::min({unit.holders.size(), length, unit.bytes / kSmallestPartBytes});
    std::partial_sort(unit.holders.begin(), unit.holders.begin() + parts, unit.holders.end(),
                      [this](const auto& a, const auto& b) { return LessLoaded(a, b); });
    for (uint64_t i = 0; i < parts; ++i) {
      const uint64_t first = length * i / parts;
      const uint64_t end = length * (i + 1) / parts;
      Box part = unit.box;
      part.offsets[dimension] += static_cast<int64_t>(first);
      part.lengths[dimension] = static_cast<int64_t>(end - first);
      Give(unit.holders[i], std::move(part), unit.bytes / length * (end - first));
    }
  }

  SavePlan& plan_;
  std::vector<uint64_t> load_bytes_;
};

}  // namespace

absl::StatusOr<SavePlan> PlanSave(StateIndex index) {
  SavePlan plan;
  plan.pieces.resize(index.ranks().size());
  plan.alias_of = ResolveAliases(index);
  std::vector<Unit> all;
  std::vector<std::string> problems;
  for (uint32_t entry = 0; entry < index.entries().size(); ++entry) {
    if (index.entries()[entry].kind != NameKind::kSharded || plan.IsAlias(entry)) continue;
    std::vector<Unit> units = GroupReplicas(index, entry);
    if (std::string problem = CheckUnits(index, entry, units); !problem.empty()) {
      problems.push_back(std::move(problem));
    }
    std::move(units.begin(), units.end(), std::back_inserter(all));
  }
  if (!problems.empty()) return absl::InvalidArgumentError(JoinProblems(problems));
  Assigner(plan).AssignAll(all);
  plan.index = std::move(index);
  return plan;
}

}  // namespace ckptd
