// A save plan with what identifies it. Immutable once made, shared by all saves of
// that layout. Pure.
#ifndef CKPTD_DAEMON_COORDINATOR_PLANNED_SAVE_H_
#define CKPTD_DAEMON_COORDINATOR_PLANNED_SAVE_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/coordinator/save_planner.h"

namespace ckptd {

struct PlannedSave {
  std::string plan_id;
  std::vector<std::string> fingerprints;  // by rank
  SavePlan plan;

  // Do these ranks have the layouts that this plan was made for?
  bool Matches(const google::protobuf::RepeatedPtrField<v1::RankLayout>& ranks) const;
  v1::PlanSaveResponse ResponseFor(std::span<const uint32_t> ranks) const;
};

// `layouts` are serialized Layouts by rank; their fingerprints follow from them.
// Seconds of work for millions of shards: not for the thread of a call.
absl::StatusOr<std::shared_ptr<const PlannedSave>> MakePlannedSave(
    const std::vector<std::string>& layouts);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_PLANNED_SAVE_H_
