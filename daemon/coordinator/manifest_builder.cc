#include "daemon/coordinator/manifest_builder.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

using Reports = std::span<const v1::CommitSaveRequest* const>;

// The manifest's list of files: those that a piece was taken from.
class FileTable {
 public:
  FileTable(Reports reports, v1::Manifest& manifest) : reports_(reports), manifest_(manifest) {}

  v1::Piece Adopt(size_t report, v1::Piece piece) {
    auto [it, added] = numbers_.try_emplace({report, piece.file()}, manifest_.files_size());
    if (added) *manifest_.add_files() = reports_[report]->files(static_cast<int>(piece.file()));
    piece.set_file(static_cast<uint32_t>(it->second));
    return piece;
  }

 private:
  Reports reports_;
  v1::Manifest& manifest_;
  absl::flat_hash_map<std::pair<size_t, uint32_t>, int> numbers_;
};

// One node's copy of a small content.
struct SmallCopy {
  size_t report = 0;
  const v1::WrittenSmall* written = nullptr;
};

// Those of all nodes that hold the same bytes.
struct DistinctContent {
  std::vector<uint32_t> ranks;  // ascending
  SmallCopy copy;               // the lowest rank's
};

class Filler {
 public:
  Filler(const SavePlan& plan, Reports reports, v1::Manifest& manifest)
      : plan_(plan),
        index_(plan.index),
        reports_(reports),
        manifest_(manifest),
        files_(reports, manifest) {}

  absl::Status Fill() {
    if (absl::Status status = CollectPieces(); !status.ok()) return status;
    if (absl::Status status = CollectSmall(); !status.ok()) return status;
    for (uint32_t entry : EntriesByName()) {
      if (index_.entries()[entry].kind == NameKind::kSharded) {
        AddTensor(entry);
      } else {
        AddSmall(entry);
      }
    }
    if (!problems_.empty()) return absl::InvalidArgumentError(JoinProblems(problems_));
    return absl::OkStatus();
  }

 private:
  struct PieceRef {
    size_t report = 0;
    const v1::Piece* piece = nullptr;
  };

  // Sorts the reported pieces by tensor, each checked against its shard.
  absl::Status CollectPieces() {
    pieces_.resize(index_.entries().size());
    for (size_t report = 0; report < reports_.size(); ++report) {
      for (const v1::WrittenPiece& written : reports_[report]->pieces()) {
        const std::optional<uint32_t> position = index_.PositionOf(written.rank());
        if (!position.has_value() || written.shard() >= index_.shard_count(*position)) {
          return absl::InvalidArgumentError(
              absl::StrCat("node ", reports_[report]->node(), " wrote shard ", written.shard(),
                           " of rank ", written.rank(), ", which there is not"));
        }
        const StateIndex::ShardRef shard{*position, written.shard()};
        if (absl::Status status = CheckAgainstShard(written.piece(), shard); !status.ok()) {
          return status;
        }
        pieces_[index_.EntryOfShard(shard)].push_back({report, &written.piece()});
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckAgainstShard(const v1::Piece& piece, StateIndex::ShardRef shard) const {
    const StateIndex::Entry& entry = index_.entries()[index_.EntryOfShard(shard)];
    const Box box{ToExtents(piece.offsets()), ToExtents(piece.lengths())};
    const uint64_t element_bytes = ElementBytes(entry.data_type);
    absl::Status status = ValidateBox(box, entry.shape, element_bytes);
    if (status.ok() && !Contains(index_.BoxOfShard(shard), box)) {
      status = absl::InvalidArgumentError(
          absl::StrCat("box ", ToString(box), " is not in the shard that it was written from"));
    }
    if (status.ok() && piece.size_bytes() != static_cast<uint64_t>(Volume(box)) * element_bytes) {
      status = absl::InvalidArgumentError(
          absl::StrCat("box ", ToString(box), " can't have ", piece.size_bytes(), " bytes"));
    }
    return Annotate(status, absl::StrCat("tensor ", entry.name, ", written by rank ",
                                         index_.ranks()[shard.rank]));
  }

  absl::Status CollectSmall() {
    small_.resize(index_.entries().size());
    for (size_t report = 0; report < reports_.size(); ++report) {
      for (const v1::WrittenSmall& written : reports_[report]->small()) {
        const std::optional<uint32_t> entry = index_.Find(written.name());
        const NameKind kind = written.is_value() ? NameKind::kValue : NameKind::kSmallTensor;
        if (!entry.has_value() || index_.entries()[*entry].kind != kind) {
          return absl::InvalidArgumentError(absl::StrCat("node ", reports_[report]->node(),
                                                         " wrote ", written.name(),
                                                         ", which is in no layout"));
        }
        const StateIndex::Entry& known = index_.entries()[*entry];
        if (kind == NameKind::kSmallTensor &&
            (known.data_type != DataTypeFromNumber(written.data_type()) ||
             known.shape != ToExtents(written.shape()))) {
          return absl::InvalidArgumentError(absl::StrCat("node ", reports_[report]->node(),
                                                         " wrote ", written.name(),
                                                         " with another type or shape"));
        }
        small_[*entry].push_back({report, &written});
      }
    }
    holders_.resize(index_.entries().size());
    alias_of_small_.resize(index_.entries().size());
    for (uint32_t position = 0; position < index_.ranks().size(); ++position) {
      const std::span<const uint32_t> small = index_.SmallOfRank(position);
      for (size_t i = 0; i < small.size(); ++i) {
        const std::string_view alias = index_.AliasOfSmall(position, i);
        const bool first = holders_[small[i]].empty();
        holders_[small[i]].push_back(index_.ranks()[position]);
        // Ranks that disagree: it is none.
        std::string_view& known = alias_of_small_[small[i]];
        known = first || known == alias ? alias : std::string_view();
      }
    }
    return absl::OkStatus();
  }

  std::vector<uint32_t> EntriesByName() const {
    std::vector<uint32_t> order(index_.entries().size());
    for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [this](uint32_t a, uint32_t b) {
      return index_.entries()[a].name < index_.entries()[b].name;
    });
    return order;
  }

  v1::TensorEntry* NewTensor(const StateIndex::Entry& entry) {
    v1::TensorEntry* tensor = manifest_.add_tensors();
    tensor->set_name(entry.name);
    tensor->set_data_type(static_cast<v1::DataType>(entry.data_type));
    tensor->mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
    return tensor;
  }

  void AddTensor(uint32_t id) {
    const StateIndex::Entry& entry = index_.entries()[id];
    v1::TensorEntry* tensor = NewTensor(entry);
    if (plan_.IsAlias(id)) {
      tensor->set_alias_of(index_.entries()[plan_.alias_of[id]].name);
      if (!pieces_[id].empty()) {
        problems_.push_back(absl::StrCat("tensor ", entry.name, " is an alias but was written"));
      }
      return;
    }
    std::vector<Box> boxes;
    boxes.reserve(pieces_[id].size());
    for (const PieceRef& ref : pieces_[id]) {
      boxes.push_back({ToExtents(ref.piece->offsets()), ToExtents(ref.piece->lengths())});
      *tensor->add_pieces() = files_.Adopt(ref.report, *ref.piece);
    }
    if (absl::Status status = CheckExactCover(entry.shape, boxes); !status.ok()) {
      problems_.push_back(
          absl::StrCat("tensor ", entry.name, " was not written exactly once: ", status.message()));
    }
  }

  // By content; empty (with a problem noted) when a rank's copy is missing or double.
  std::vector<DistinctContent> Distinct(uint32_t id) {
    std::map<std::string_view, DistinctContent> by_hash;
    std::vector<uint32_t> given;
    for (const SmallCopy& copy : small_[id]) {
      const auto& ranks = copy.written->ranks();
      given.insert(given.end(), ranks.begin(), ranks.end());
      DistinctContent& content = by_hash[copy.written->sha256()];
      if (content.ranks.empty() || ranks[0] < content.ranks.front()) content.copy = copy;
      content.ranks.insert(content.ranks.end(), ranks.begin(), ranks.end());
      std::sort(content.ranks.begin(), content.ranks.end());
    }
    std::sort(given.begin(), given.end());
    if (given != holders_[id]) {
      problems_.push_back(absl::StrCat(index_.entries()[id].name, " was given by ",
                                       RanksToString(holders_[id]), " but written for ",
                                       RanksToString(given)));
      return {};
    }
    std::vector<DistinctContent> contents;
    contents.reserve(by_hash.size());
    for (auto& [hash, content] : by_hash) contents.push_back(std::move(content));
    std::sort(contents.begin(), contents.end(),
              [](const auto& a, const auto& b) { return a.ranks.front() < b.ranks.front(); });
    return contents;
  }

  void AddSmall(uint32_t id) {
    const StateIndex::Entry& entry = index_.entries()[id];
    const std::vector<DistinctContent> contents = Distinct(id);
    if (contents.empty()) return;
    const bool agreed = contents.size() == 1;
    if (entry.kind == NameKind::kSmallTensor && agreed) {
      v1::TensorEntry* tensor = NewTensor(entry);
      if (IsAliasOfSmall(id, contents.front())) {
        tensor->set_alias_of(std::string(alias_of_small_[id]));
      } else {
        *tensor->add_pieces() = Adopt(contents.front());
      }
      return;
    }
    google::protobuf::RepeatedPtrField<v1::PerRankCopy>* copies = nullptr;
    if (entry.kind == NameKind::kValue) {
      v1::ValueEntry* value = manifest_.add_values();
      value->set_name(entry.name);
      copies = value->mutable_copies();
    } else {
      v1::PerRankEntry* per_rank = manifest_.add_per_rank();
      per_rank->set_name(entry.name);
      per_rank->set_data_type(static_cast<v1::DataType>(entry.data_type));
      per_rank->mutable_shape()->Add(entry.shape.begin(), entry.shape.end());
      copies = per_rank->mutable_copies();
    }
    for (const DistinctContent& content : contents) {
      v1::PerRankCopy* copy = copies->Add();
      if (!agreed) copy->mutable_ranks()->Add(content.ranks.begin(), content.ranks.end());
      *copy->mutable_piece() = Adopt(content);
    }
  }

  // All ranks say that it shares one tensor's memory, and agree about that one's content too.
  bool IsAliasOfSmall(uint32_t id, const DistinctContent& content) const {
    const std::string_view name = alias_of_small_[id];
    const std::optional<uint32_t> target = name.empty() ? std::nullopt : index_.Find(name);
    if (!target.has_value() || !alias_of_small_[*target].empty()) return false;
    const StateIndex::Entry& mine = index_.entries()[id];
    const StateIndex::Entry& other = index_.entries()[*target];
    if (other.kind != NameKind::kSmallTensor || other.data_type != mine.data_type ||
        other.shape != mine.shape) {
      return false;
    }
    return std::all_of(small_[*target].begin(), small_[*target].end(), [&](const SmallCopy& copy) {
      return copy.written->sha256() == content.copy.written->sha256();
    });
  }

  v1::Piece Adopt(const DistinctContent& content) {
    return files_.Adopt(content.copy.report, content.copy.written->piece());
  }

  const SavePlan& plan_;
  const StateIndex& index_;
  Reports reports_;
  v1::Manifest& manifest_;
  FileTable files_;
  std::vector<std::vector<PieceRef>> pieces_;     // by entry
  std::vector<std::vector<SmallCopy>> small_;     // by entry
  std::vector<std::vector<uint32_t>> holders_;    // by entry: the ranks that gave it
  std::vector<std::string_view> alias_of_small_;  // by entry, as its ranks agree; empty: none
  std::vector<std::string> problems_;
};

}  // namespace

absl::Status FillManifest(const SavePlan& plan, Reports reports, v1::Manifest& manifest) {
  return Filler(plan, reports, manifest).Fill();
}

}  // namespace ckptd
