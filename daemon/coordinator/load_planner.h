// What to read for a load: from what was saved and what every rank wants to each
// node's pieces. Pure: the entries come in, plans go out.
//
// - Every piece is listed once per node, with all ranks of the node that want some.
// - A tensor that was saved per rank, and a value, is delivered whole: with the
//   saver's world size rank r gets r's copy; with another size the caller's
//   PerRankRule decides.
// - Everything that is wrong, over all ranks, is one error that lists it.
#ifndef CKPTD_DAEMON_COORDINATOR_LOAD_PLANNER_H_
#define CKPTD_DAEMON_COORDINATOR_LOAD_PLANNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/catalog.pb.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/coordinator/piece_index.h"

namespace ckptd {

// A checkpoint as far as a load needs it: the record, all names, and the entries of
// the names that are wanted and of those that they are aliases of.
struct SavedState {
  v1::CheckpointRecord record;
  v1::NameIndex names;
  absl::flat_hash_map<std::string, v1::CatalogEntry> entries;
};

// The names in the requests, each once.
std::set<std::string> WantedNames(std::span<const v1::PlanLoadRequest* const> requests);

// INVALID_ARGUMENT for what no request may contain: names, shapes, boxes, ranks given
// twice, small tensors (in a load every tensor is a shard).
absl::Status CheckWants(const v1::PlanLoadRequest& request);

// One response per request, in the same order. The requests are all nodes' of one
// load, each passed by CheckWants, their options alike. FAILED_PRECONDITION listing
// all that is missing, of another shape or type, extra, or needs a rule.
absl::StatusOr<std::vector<v1::PlanLoadResponse>> PlanLoad(
    const SavedState& saved, std::span<const v1::PlanLoadRequest* const> requests,
    uint32_t world_size);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_LOAD_PLANNER_H_
