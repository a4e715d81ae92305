#include "daemon/coordinator/planned_save.h"

#include <algorithm>
#include <utility>

#include "daemon/coordinator/fingerprint.h"

namespace ckptd {

bool PlannedSave::Matches(const google::protobuf::RepeatedPtrField<v1::RankLayout>& ranks) const {
  return std::all_of(ranks.begin(), ranks.end(), [this](const v1::RankLayout& rank) {
    return rank.rank() < fingerprints.size() && fingerprints[rank.rank()] == rank.fingerprint();
  });
}

v1::PlanSaveResponse PlannedSave::ResponseFor(std::span<const uint32_t> ranks) const {
  v1::PlanSaveResponse response;
  response.set_plan_id(plan_id);
  for (uint32_t rank : ranks) {
    v1::RankPlan* rank_plan = response.add_ranks();
    rank_plan->set_rank(rank);
    for (const PlannedBox& planned : plan.pieces[rank]) {
      v1::PlannedPiece* piece = rank_plan->add_pieces();
      piece->set_shard(planned.shard);
      piece->mutable_offsets()->Add(planned.box.offsets.begin(), planned.box.offsets.end());
      piece->mutable_lengths()->Add(planned.box.lengths.begin(), planned.box.lengths.end());
    }
  }
  return response;
}

absl::StatusOr<std::shared_ptr<const PlannedSave>> MakePlannedSave(
    const std::vector<std::string>& layouts) {
  auto planned = std::make_shared<PlannedSave>();
  std::vector<SerializedLayout> serialized;
  for (uint32_t rank = 0; rank < layouts.size(); ++rank) {
    serialized.push_back({rank, layouts[rank]});
    planned->fingerprints.push_back(Sha256(layouts[rank]));
  }
  planned->plan_id = PlanId(planned->fingerprints);
  absl::StatusOr<StateIndex> index = StateIndex::Create(std::move(serialized));
  if (!index.ok()) return index.status();
  absl::StatusOr<SavePlan> plan = PlanSave(*std::move(index));
  if (!plan.ok()) return plan.status();
  planned->plan = *std::move(plan);
  return planned;
}

}  // namespace ckptd
