#include "daemon/coordinator/state_index.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

std::string_view KindName(NameKind kind) {
  switch (kind) {
    case NameKind::kSharded:
      return "a tensor";
    case NameKind::kSmallTensor:
      return "a small tensor";
    case NameKind::kValue:
      return "a value";
  }
  return "?";
}

std::string Describe(const StateIndex::Entry& entry) {
  if (entry.kind == NameKind::kValue) return std::string(KindName(entry.kind));
  return absl::StrCat(Abseil(KindName(entry.kind)), " ", Abseil(DataTypeName(entry.data_type)),
                      ShapeToString(entry.shape));
}

bool SameThing(const StateIndex::Entry& a, const StateIndex::Entry& b) {
  return a.kind == b.kind && a.data_type == b.data_type && a.shape == b.shape;
}

}  // namespace

// Takes the ranks in ascending order.
class StateIndex::Builder {
 public:
  explicit Builder(StateIndex& index) : index_(index) {}

  absl::Status AddRank(const SerializedLayout& serialized) {
    v1::Layout layout;
    if (!layout.ParseFromArray(serialized.bytes.data(),
                               static_cast<int>(serialized.bytes.size()))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the layout of rank ", serialized.rank, " is not a serialized Layout"));
    }
    index_.first_shard_.push_back(index_.shards_.size());
    index_.first_small_.push_back(index_.small_.size());
    index_.ranks_.push_back(serialized.rank);
    absl::Status status = AddShards(serialized.rank, layout);
    if (status.ok()) status = AddSmall(serialized.rank, layout);
    return Annotate(status, absl::StrCat("the layout of rank ", serialized.rank));
  }

  absl::Status Finish() {
    index_.first_shard_.push_back(index_.shards_.size());
    index_.first_small_.push_back(index_.small_.size());
    if (!disagreements_.empty()) return absl::InvalidArgumentError(DescribeDisagreements());
    GroupByEntry();
    return absl::OkStatus();
  }

 private:
  // What the ranks that differ from the first say of an entry.
  struct Disagreement {
    Entry other;
    std::vector<uint32_t> ranks;
  };

  absl::Status AddShards(uint32_t rank, const v1::Layout& layout) {
    for (int i = 0; i < layout.shards_size(); ++i) {
      const v1::Shard& shard = layout.shards(i);
      Entry entry{
          .name = shard.name(),
          .kind = NameKind::kSharded,
          .data_type = DataTypeFromNumber(shard.data_type()).value_or(DataType::kUnspecified),
          .shape = ToExtents(shard.shape()),
          .first_rank = rank};
      const Box box{ToExtents(shard.offsets()), ToExtents(shard.lengths())};
      absl::Status status = CheckTensor(entry);
      if (status.ok()) status = ValidateBox(box, entry.shape, ElementBytes(entry.data_type));
      if (!status.ok()) return Annotate(status, absl::StrCat("shard ", i, ", ", shard.name()));
      index_.shards_.push_back({.entry = Intern(std::move(entry), rank),
                                .alias = InternAlias(shard.alias_of()),
                                .extents_at = index_.extents_.size()});
      index_.extents_.insert(index_.extents_.end(), box.offsets.begin(), box.offsets.end());
      index_.extents_.insert(index_.extents_.end(), box.lengths.begin(), box.lengths.end());
    }
    return absl::OkStatus();
  }

  absl::Status AddSmall(uint32_t rank, const v1::Layout& layout) {
    absl::flat_hash_set<uint32_t> seen;
    auto add = [&](Entry entry, const std::string& alias = "") {
      const std::string name = entry.name;
      const uint32_t id = Intern(std::move(entry), rank);
      if (!seen.insert(id).second) {
        return absl::InvalidArgumentError(absl::StrCat(name, " is given twice"));
      }
      index_.small_.push_back(id);
      index_.small_alias_.push_back(InternAlias(alias));
      return absl::OkStatus();
    };
    for (const v1::SmallTensor& tensor : layout.small_tensors()) {
      Entry entry{
          .name = tensor.name(),
          .kind = NameKind::kSmallTensor,
          .data_type = DataTypeFromNumber(tensor.data_type()).value_or(DataType::kUnspecified),
          .shape = ToExtents(tensor.shape()),
          .first_rank = rank};
      absl::Status status = CheckTensor(entry);
      if (!status.ok()) return Annotate(status, absl::StrCat("small tensor ", tensor.name()));
      if (status = add(std::move(entry), tensor.alias_of()); !status.ok()) return status;
    }
    for (const std::string& name : layout.values()) {
      absl::Status status = ValidateEntryName(name);
      if (status.ok()) {
        status = add({.name = name, .kind = NameKind::kValue, .first_rank = rank});
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  static absl::Status CheckTensor(const Entry& entry) {
    if (absl::Status status = ValidateEntryName(entry.name); !status.ok()) return status;
    if (entry.data_type == DataType::kUnspecified) {
      return absl::InvalidArgumentError("its data type is none that this version knows");
    }
    return ValidateShape(entry.shape, ElementBytes(entry.data_type));
  }

  uint32_t Intern(Entry entry, uint32_t rank) {
    auto [it, added] = index_.ids_.try_emplace(entry.name, index_.entries_.size());
    if (added) {
      index_.entries_.push_back(std::move(entry));
    } else if (!SameThing(index_.entries_[it->second], entry)) {
      auto [at, first] = disagreements_.try_emplace(it->second);
      if (first) at->second.other = std::move(entry);
      if (at->second.ranks.empty() || at->second.ranks.back() != rank) {
        at->second.ranks.push_back(rank);
      }
    }
    return it->second;
  }

  uint32_t InternAlias(const std::string& name) {
    if (name.empty()) return 0;
    auto [it, added] = alias_ids_.try_emplace(name, index_.aliases_.size());
    if (added) index_.aliases_.push_back(name);
    return it->second;
  }

  std::string DescribeDisagreements() const {
    std::vector<uint32_t> ids;
    for (const auto& [id, unused] : disagreements_) ids.push_back(id);
    std::sort(ids.begin(), ids.end());
    std::vector<std::string> problems;
    for (uint32_t id : ids) {
      const Entry& first = index_.entries_[id];
      const Disagreement& other = disagreements_.at(id);
      problems.push_back(absl::StrCat(first.name, " is ", Describe(first), " on rank ",
                                      first.first_rank, " but ", Describe(other.other), " on ",
                                      RanksToString(other.ranks)));
    }
    return absl::StrCat("ranks disagree about ", JoinProblems(problems));
  }

  // A counting sort of all shards by entry.
  void GroupByEntry() {
    index_.first_of_entry_.assign(index_.entries_.size() + 1, 0);
    for (const Shard& shard : index_.shards_) ++index_.first_of_entry_[shard.entry + 1];
    for (size_t i = 0; i < index_.entries_.size(); ++i) {
      index_.first_of_entry_[i + 1] += index_.first_of_entry_[i];
    }
    index_.by_entry_.resize(index_.shards_.size());
    std::vector<uint64_t> next(index_.first_of_entry_.begin(), index_.first_of_entry_.end() - 1);
    for (uint32_t position = 0; position < index_.ranks_.size(); ++position) {
      for (uint32_t i = 0; i < index_.shard_count(position); ++i) {
        const ShardRef ref{position, i};
        index_.by_entry_[next[index_.EntryOfShard(ref)]++] = ref;
      }
    }
  }

  StateIndex& index_;
  absl::flat_hash_map<std::string, uint32_t> alias_ids_;
  absl::flat_hash_map<uint32_t, Disagreement> disagreements_;
};

absl::StatusOr<StateIndex> StateIndex::Create(std::vector<SerializedLayout> layouts) {
  std::sort(layouts.begin(), layouts.end(),
            [](const auto& a, const auto& b) { return a.rank < b.rank; });
  StateIndex index;
  Builder builder(index);
  for (size_t i = 0; i < layouts.size(); ++i) {
    if (i > 0 && layouts[i].rank == layouts[i - 1].rank) {
      return absl::InvalidArgumentError(
          absl::StrCat("two layouts were given for rank ", layouts[i].rank));
    }
    if (absl::Status status = builder.AddRank(layouts[i]); !status.ok()) return status;
  }
  if (absl::Status status = builder.Finish(); !status.ok()) return status;
  return index;
}

std::optional<uint32_t> StateIndex::PositionOf(uint32_t rank) const {
  auto it = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  if (it == ranks_.end() || *it != rank) return std::nullopt;
  return static_cast<uint32_t>(it - ranks_.begin());
}

std::optional<uint32_t> StateIndex::Find(std::string_view name) const {
  auto it = ids_.find(Abseil(name));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

uint32_t StateIndex::shard_count(uint32_t position) const {
  return static_cast<uint32_t>(first_shard_[position + 1] - first_shard_[position]);
}

Box StateIndex::BoxOfShard(ShardRef ref) const {
  const Shard& found = shard(ref);
  const size_t dimensions = entries_[found.entry].shape.size();
  const int64_t* offsets = extents_.data() + found.extents_at;
  const int64_t* lengths = offsets + dimensions;
  return {Extents(offsets, lengths), Extents(lengths, lengths + dimensions)};
}

std::string_view StateIndex::AliasOfShard(ShardRef ref) const { return aliases_[shard(ref).alias]; }

std::span<const StateIndex::ShardRef> StateIndex::ShardsOfEntry(uint32_t entry) const {
  return std::span(by_entry_).subspan(first_of_entry_[entry],
                                      first_of_entry_[entry + 1] - first_of_entry_[entry]);
}

std::span<const uint32_t> StateIndex::SmallOfRank(uint32_t position) const {
  return std::span(small_).subspan(first_small_[position],
                                   first_small_[position + 1] - first_small_[position]);
}

std::string_view StateIndex::AliasOfSmall(uint32_t position, size_t i) const {
  return aliases_[small_alias_[first_small_[position] + i]];
}

}  // namespace ckptd
