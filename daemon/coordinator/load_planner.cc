#include "daemon/coordinator/load_planner.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/load_problems.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"
#include "storage/layout/data_type.h"

namespace ckptd {
namespace {

using Kind = LoadProblems::Kind;
using PieceIndexes = absl::flat_hash_map<std::string, std::unique_ptr<PieceIndex>>;
using Copies = google::protobuf::RepeatedPtrField<v1::PerRankCopy>;

DataType TypeOf(v1::DataType type) {
  return DataTypeFromNumber(type).value_or(DataType::kUnspecified);
}

Box BoxOf(const v1::Piece& piece) {
  return {ToExtents(piece.offsets()), ToExtents(piece.lengths())};
}

// One node's response in the making.
class NodePlan {
 public:
  NodePlan(const SavedState& saved, v1::PlanLoadResponse& response)
      : saved_(saved), response_(response) {
    response.set_step(saved.record.summary().step());
    response.set_saved_world_size(saved.record.summary().world_size());
    response.set_store(saved.record.summary().store());
    response.set_chunk_bytes(saved.record.chunk_bytes());
  }

  v1::RankLoad& AddRank(uint32_t rank) {
    v1::RankLoad* load = response_.add_ranks();
    load->set_rank(rank);
    return *load;
  }

  // `piece` lies in the saved state: its address identifies it.
  v1::PieceTarget& AddTarget(const v1::Piece& piece, v1::DataType type, const std::string& name,
                             uint32_t rank) {
    auto [it, added] = pieces_.try_emplace(&piece, response_.pieces_size());
    if (added) {
      v1::WantedPiece* wanted = response_.add_pieces();
      *wanted->mutable_piece() = piece;
      wanted->mutable_piece()->set_file(FileNumber(piece.file()));
      wanted->set_data_type(type);
      wanted->set_name(name);
    }
    v1::PieceTarget* target = response_.mutable_pieces(it->second)->add_targets();
    target->set_rank(rank);
    return *target;
  }

 private:
  uint32_t FileNumber(uint32_t saved_number) {
    auto [it, added] = files_.try_emplace(saved_number, response_.files_size());
    if (added) *response_.add_files() = saved_.record.files(static_cast<int>(saved_number));
    return static_cast<uint32_t>(it->second);
  }

  const SavedState& saved_;
  v1::PlanLoadResponse& response_;
  absl::flat_hash_map<const v1::Piece*, int> pieces_;
  absl::flat_hash_map<uint32_t, int> files_;
};

class Planner {
 public:
  Planner(const SavedState& saved, const v1::LoadOptions& options, uint32_t world_size,
          LoadProblems& problems)
      : saved_(saved), options_(options), world_size_(world_size), problems_(problems) {}

  void PlanRank(const v1::RankWant& want, NodePlan& node) {
    v1::RankLoad& load = node.AddRank(want.rank());
    for (int i = 0; i < want.layout().shards_size(); ++i) {
      PlanShard(want.rank(), static_cast<uint32_t>(i), want.layout().shards(i), node, load);
    }
    for (int i = 0; i < want.layout().values_size(); ++i) {
      PlanValue(want.rank(), static_cast<uint32_t>(i), want.layout().values(i), node, load);
    }
  }

 private:
  const v1::CatalogEntry* Find(const std::string& name) const {
    auto it = saved_.entries.find(name);
    return it == saved_.entries.end() ? nullptr : &it->second;
  }

  void Missing(const std::string& name, uint32_t rank, v1::RankLoad& load) {
    if (options_.allow_missing()) {
      load.add_missing(name);
    } else {
      problems_.Add(Kind::kMissing, name, rank);
    }
  }

  void PlanShard(uint32_t rank, uint32_t number, const v1::Shard& shard, NodePlan& node,
                 v1::RankLoad& load) {
    const v1::CatalogEntry* entry = Find(shard.name());
    if (entry == nullptr) return Missing(shard.name(), rank, load);
    if (entry->has_value()) {
      problems_.Add(Kind::kKind,
                    absl::StrCat(shard.name(), " is saved as a value, wanted as a tensor"), rank);
      return;
    }
    const bool per_rank = entry->has_per_rank();
    const v1::DataType type =
        per_rank ? entry->per_rank().data_type() : entry->tensor().data_type();
    const Extents shape = ToExtents(per_rank ? entry->per_rank().shape() : entry->tensor().shape());
    if (!CheckShape(rank, shard, shape) || !CheckType(rank, shard, type)) return;
    if (per_rank) {
      PlanPerRankShard(rank, number, shard, entry->per_rank(), node, load);
      return;
    }
    const v1::CatalogEntry* bytes =
        entry->tensor().alias_of().empty() ? entry : Find(entry->tensor().alias_of());
    if (bytes == nullptr || !bytes->has_tensor()) return Missing(shard.name(), rank, load);
    if (shard.data_type() != type) {
      v1::CastShard* cast = load.add_casts();
      cast->set_shard(number);
      cast->set_saved_data_type(type);
    }
    const Box box{ToExtents(shard.offsets()), ToExtents(shard.lengths())};
    for (uint32_t piece : IndexOf(bytes->tensor()).Meeting(box)) {
      node.AddTarget(bytes->tensor().pieces(static_cast<int>(piece)), type, bytes->tensor().name(),
                     rank)
          .set_shard(number);
    }
  }

  bool CheckShape(uint32_t rank, const v1::Shard& shard, const Extents& saved) {
    const Extents wanted = ToExtents(shard.shape());
    if (wanted == saved) return true;
    problems_.Add(Kind::kShape,
                  absl::StrCat(shard.name(), " is saved as ", ShapeToString(saved), ", wanted as ",
                               ShapeToString(wanted)),
                  rank);
    return false;
  }

  bool CheckType(uint32_t rank, const v1::Shard& shard, v1::DataType saved) {
    if (shard.data_type() == saved || options_.allow_cast()) return true;
    problems_.Add(Kind::kType,
                  absl::StrCat(shard.name(), " is saved as ", Abseil(DataTypeName(TypeOf(saved))),
                               ", wanted as ", Abseil(DataTypeName(TypeOf(shard.data_type())))),
                  rank);
    return false;
  }

  void PlanPerRankShard(uint32_t rank, uint32_t number, const v1::Shard& shard,
                        const v1::PerRankEntry& entry, NodePlan& node, v1::RankLoad& load) {
    const Box box{ToExtents(shard.offsets()), ToExtents(shard.lengths())};
    if (box != WholeBox(ToExtents(shard.shape()))) {
      problems_.Add(
          Kind::kPerRank,
          absl::StrCat(shard.name(), " can only be loaded whole, not box ", ToString(box)), rank);
      return;
    }
    for (const v1::PerRankCopy* copy : Choose(entry.name(), entry.copies(), rank, load)) {
      v1::SmallDelivery& delivery =
          Deliver(*copy, entry.name(), entry.data_type(), rank, node, load);
      delivery.set_shard(number);
    }
  }

  void PlanValue(uint32_t rank, uint32_t number, const std::string& name, NodePlan& node,
                 v1::RankLoad& load) {
    const v1::CatalogEntry* entry = Find(name);
    if (entry == nullptr) return Missing(name, rank, load);
    if (!entry->has_value()) {
      problems_.Add(Kind::kKind, absl::StrCat(name, " is saved as a tensor, wanted as a value"),
                    rank);
      return;
    }
    for (const v1::PerRankCopy* copy : Choose(name, entry->value().copies(), rank, load)) {
      Deliver(*copy, name, v1::DATA_TYPE_U8, rank, node, load).set_value(number);
    }
  }

  static v1::SmallDelivery& Deliver(const v1::PerRankCopy& copy, const std::string& name,
                                    v1::DataType type, uint32_t rank, NodePlan& node,
                                    v1::RankLoad& load) {
    node.AddTarget(copy.piece(), type, name, rank).set_small(load.small_size());
    v1::SmallDelivery* delivery = load.add_small();
    *delivery->mutable_saved_ranks() = copy.ranks();
    delivery->set_size_bytes(copy.piece().size_bytes());
    delivery->set_saved_data_type(type);
    return *delivery;
  }

  static const v1::PerRankCopy* CopyOf(const Copies& copies, uint32_t rank) {
    for (const v1::PerRankCopy& copy : copies) {
      if (std::binary_search(copy.ranks().begin(), copy.ranks().end(), rank)) return &copy;
    }
    return nullptr;
  }

  // The copies that this rank is given; none (with a problem noted) where it may have none.
  std::vector<const v1::PerRankCopy*> Choose(const std::string& name, const Copies& copies,
                                             uint32_t rank, v1::RankLoad& load) {
    std::vector<const v1::PerRankCopy*> chosen;
    if (copies.size() == 1 && copies[0].ranks().empty()) return {&copies[0]};
    const uint32_t saved_size = saved_.record.summary().world_size();
    v1::PerRankRule rule = options_.per_rank_rule();
    if (saved_size == world_size_) rule = v1::PER_RANK_RULE_MINE;
    switch (rule) {
      case v1::PER_RANK_RULE_ALL:
        for (const v1::PerRankCopy& copy : copies) chosen.push_back(&copy);
        return chosen;
      case v1::PER_RANK_RULE_MINE:
      case v1::PER_RANK_RULE_RANK_ZERO: {
        const uint32_t source = rule == v1::PER_RANK_RULE_MINE ? rank : 0;
        const v1::PerRankCopy* copy = CopyOf(copies, source);
        if (copy != nullptr) return {copy};
        Missing(absl::StrCat(name, " of rank ", source), rank, load);
        return {};
      }
      default:
        problems_.Add(Kind::kPerRank,
                      absl::StrCat(name, " differs between the ", saved_size,
                                   " ranks that saved it; a world of ", world_size_,
                                   " needs a per-rank rule"),
                      rank);
        return {};
    }
  }

  const PieceIndex& IndexOf(const v1::TensorEntry& tensor) {
    std::unique_ptr<PieceIndex>& index = indexes_[tensor.name()];
    if (index == nullptr) {
      std::vector<Box> boxes;
      for (const v1::Piece& piece : tensor.pieces()) boxes.push_back(BoxOf(piece));
      index = std::make_unique<PieceIndex>(std::move(boxes));
    }
    return *index;
  }

  const SavedState& saved_;
  const v1::LoadOptions& options_;
  const uint32_t world_size_;
  LoadProblems& problems_;
  PieceIndexes indexes_;
};

absl::Status CheckShard(const v1::Shard& shard) {
  if (absl::Status status = ValidateEntryName(shard.name()); !status.ok()) return status;
  const DataType type = TypeOf(shard.data_type());
  if (type == DataType::kUnspecified) {
    return absl::InvalidArgumentError("its data type is none that this version knows");
  }
  return ValidateBox({ToExtents(shard.offsets()), ToExtents(shard.lengths())},
                     ToExtents(shard.shape()), ElementBytes(type));
}

}  // namespace

std::set<std::string> WantedNames(std::span<const v1::PlanLoadRequest* const> requests) {
  std::set<std::string> names;
  for (const v1::PlanLoadRequest* request : requests) {
    for (const v1::RankWant& want : request->ranks()) {
      for (const v1::Shard& shard : want.layout().shards()) names.insert(shard.name());
      names.insert(want.layout().values().begin(), want.layout().values().end());
    }
  }
  return names;
}

absl::Status CheckWants(const v1::PlanLoadRequest& request) {
  std::set<uint32_t> ranks;
  for (const v1::RankWant& want : request.ranks()) {
    const std::string who = absl::StrCat("rank ", want.rank());
    if (!ranks.insert(want.rank()).second) {
      return absl::InvalidArgumentError(absl::StrCat(who, " is given twice"));
    }
    if (!want.layout().small_tensors().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(who, " lists small tensors; in a load every tensor is a shard"));
    }
    for (const v1::Shard& shard : want.layout().shards()) {
      if (absl::Status status = CheckShard(shard); !status.ok()) {
        return Annotate(status, absl::StrCat(who, ", shard of ", shard.name()));
      }
    }
    for (const std::string& name : want.layout().values()) {
      if (absl::Status status = ValidateEntryName(name); !status.ok()) return Annotate(status, who);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::PlanLoadResponse>> PlanLoad(
    const SavedState& saved, std::span<const v1::PlanLoadRequest* const> requests,
    uint32_t world_size) {
  const v1::LoadOptions& options = requests.front()->options();
  LoadProblems problems;
  Planner planner(saved, options, world_size, problems);
  std::vector<v1::PlanLoadResponse> responses(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    NodePlan node(saved, responses[i]);
    for (const v1::RankWant& want : requests[i]->ranks()) planner.PlanRank(want, node);
  }
  if (!options.allow_extra()) {
    const std::set<std::string> wanted = WantedNames(requests);
    for (const std::string& name : saved.names.names()) {
      if (wanted.count(name) == 0) problems.AddExtra(name);
    }
  }
  if (absl::Status status = problems.ToStatus(); !status.ok()) return status;
  return responses;
}

}  // namespace ckptd
