// Who writes what: decides for every tensor which rank stores which box.
//
// - Shards with identical boxes are replicas: written once, by the holder with the
//   fewest bytes to write. Large ones are split over their holders along the
//   outermost dimension longer than one.
// - Any other overlap is a conflict; together the shards cover every tensor exactly.
// - A tensor whose every shard shares the memory of the same box of one other
//   tensor is an alias: nothing of it is written.
// - A tensor without elements is one empty piece, so that files name it.
// Small tensors and values are not planned: their contents are compared at commit.
//
// Pure and deterministic: the same layouts give the same plan, in whatever order
// they come. Near-linear in the number of shards.
#ifndef CKPTD_DAEMON_COORDINATOR_SAVE_PLANNER_H_
#define CKPTD_DAEMON_COORDINATOR_SAVE_PLANNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/coordinator/state_index.h"
#include "storage/layout/box.h"

namespace ckptd {

// A replicated box of at least this size is split over its holders, into parts of
// no less than kSmallestPartBytes.
inline constexpr uint64_t kSplitBytes = 16 << 20;
inline constexpr uint64_t kSmallestPartBytes = 4 << 20;

struct PlannedBox {
  uint32_t shard = 0;  // index into the writing rank's Layout.shards
  Box box;             // inside that shard's box
};

struct SavePlan {
  static constexpr uint32_t kNoAlias = UINT32_MAX;

  StateIndex index;
  // By position in index.ranks(); of one rank ascending in (shard, box).
  std::vector<std::vector<PlannedBox>> pieces;
  // By entry: the entry whose bytes it shares (never itself an alias).
  std::vector<uint32_t> alias_of;

  bool IsAlias(uint32_t entry) const { return alias_of[entry] != kNoAlias; }
};

// INVALID_ARGUMENT, listing every tensor with a hole (naming the box) or a conflict
// (naming both boxes and their ranks).
absl::StatusOr<SavePlan> PlanSave(StateIndex index);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_SAVE_PLANNER_H_
