#include "daemon/node/save_attempt.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

double SecondsBetween(absl::Time begin, absl::Time end) {
  return std::max(0.0, absl::ToDoubleSeconds(end - begin));
}

template <typename Predicate>
std::string NameRanks(const std::map<uint32_t, RankPart>& ranks, Predicate wanted) {
  std::vector<std::string> names;
  for (const auto& [rank, part] : ranks) {
    if (wanted(part)) names.push_back(absl::StrCat(rank, " (process ", part.process_id, ")"));
  }
  return absl::StrJoin(names, ", ");
}

// The type is part of the identity: equal bytes of another shape are another content.
ContentKey KeyOf(const RankPart& part, uint32_t content) {
  const CheckedSmall& entry = part.layout->small[content];
  return {absl::StrCat(entry.name, "\n", entry.is_value, "\n", static_cast<int>(entry.data_type),
                       ShapeToString(entry.shape)),
          part.small[content].sha256(), part.small[content].size_bytes()};
}

// `written`, of one holder, as named by `ranks`.
v1::WrittenSmall NamedBy(v1::WrittenSmall written, std::vector<uint32_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  written.mutable_ranks()->Add(ranks.begin(), ranks.end());
  return written;
}

}  // namespace

bool SaveAttempt::all_begun() const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const auto& entry) { return entry.second.begun; });
}

bool SaveAttempt::all_finished() const {
  return std::all_of(ranks.begin(), ranks.end(),
                     [](const auto& entry) { return entry.second.finished; });
}

bool SaveAttempt::holds_leases() const {
  return std::any_of(ranks.begin(), ranks.end(), [](const auto& entry) {
    return entry.second.tensors != nullptr || entry.second.small_lease != nullptr;
  });
}

bool SaveAttempt::any_alive() const {
  return std::any_of(ranks.begin(), ranks.end(),
                     [](const auto& entry) { return entry.second.alive; });
}

bool SaveAttempt::waits_for_arena() const {
  return (tensors_requested && !tensors_leased) ||
         std::any_of(ranks.begin(), ranks.end(), [](const auto& entry) {
           const RankPart& part = entry.second;
           return (part.small_decided && !part.small_leased) || part.extend_done;
         });
}

uint64_t SaveAttempt::bytes() const {
  if (!in_flight() && ended_bytes > 0) return ended_bytes;
  uint64_t total = 0;
  if (plan == nullptr) return 0;
  for (const auto& [rank, part] : ranks) {
    total += plan->images.at(rank)->image_bytes() + part.small_image.image_bytes();
  }
  return total;
}

std::string SaveAttempt::Describe(const std::string& node) const {
  return absl::StrCat("saving step ", step, " of job ", key.job, " (",
                      AttemptName(key.epoch, key.save_number), ") on node ", node);
}

std::string SaveAttempt::DescribeHolders() const {
  return absl::StrCat("rank ", NameRanks(ranks, [](const RankPart& part) {
                        return part.tensors != nullptr || part.small_lease != nullptr;
                      }));
}

std::string SaveAttempt::DescribeWait() const {
  switch (phase) {
    case v1::SAVE_PHASE_PLAN:
      if (!all_begun()) {
        return absl::StrCat("waited for save() of rank ",
                            NameRanks(ranks, [](const RankPart& part) { return !part.begun; }));
      }
      return plan == nullptr ? "waited for the coordinator's plan" : "waited for arena memory";
    case v1::SAVE_PHASE_SNAPSHOT:
      if (waits_for_arena()) return "waited for arena memory";
      return absl::StrCat("waited for the snapshot of rank ",
                          NameRanks(ranks, [](const RankPart& part) { return !part.finished; }));
    case v1::SAVE_PHASE_PERSIST:
      return absl::StrCat("waited for ", files_in_flight, " files to be written to store ",
                          world.store);
    default:
      return "waited for the coordinator's commit";
  }
}

v1::Attempt SaveAttempt::AttemptProto() const {
  v1::Attempt attempt;
  attempt.set_epoch(key.epoch);
  attempt.set_save_number(key.save_number);
  return attempt;
}

v1::SaveStatus SaveAttempt::ToProto() const {
  v1::SaveStatus status;
  status.set_phase(phase);
  status.set_error_code(static_cast<int>(error.code()));
  status.set_error_message(std::string(error.message()));
  status.set_bytes(bytes());
  status.set_snapshot_seconds(SecondsBetween(started, snapshot_finished));
  status.set_persist_seconds(SecondsBetween(snapshot_finished, persist_finished));
  if (phase == v1::SAVE_PHASE_DURABLE) status.set_durable_seconds(SecondsBetween(started, ended));
  return status;
}

std::vector<uint32_t> SaveAttempt::ChangedAlone() const {
  std::vector<uint32_t> changed;
  if (earlier_plan == nullptr) return changed;
  bool any_same = false;
  for (const auto& [rank, part] : ranks) {
    if (!part.begun) continue;
    auto known = earlier_plan->fingerprints.find(rank);
    if (known != earlier_plan->fingerprints.end() && known->second == part.layout->fingerprint) {
      any_same = true;
    } else {
      changed.push_back(rank);
    }
  }
  if (!any_same) changed.clear();
  return changed;
}

std::vector<v1::RankLayout> SaveAttempt::RankLayouts(bool with_layouts) const {
  std::vector<v1::RankLayout> layouts;
  for (const auto& [rank, part] : ranks) {
    if (part.layout == nullptr) continue;
    v1::RankLayout& layout = layouts.emplace_back();
    layout.set_rank(rank);
    layout.set_fingerprint(part.layout->fingerprint);
    if (with_layouts) layout.set_layout(part.layout->serialized);
  }
  return layouts;
}

std::vector<uint32_t> SaveAttempt::HoldContents(uint32_t rank) {
  const RankPart& part = ranks.at(rank);
  std::vector<uint32_t> mine;
  for (uint32_t i = 0; i < part.small.size(); ++i) {
    const CheckedSmall& entry = part.layout->small[i];
    // One that changed between its hash and that of its alias is a content of its own.
    if (entry.alias_of.has_value() &&
        part.small[i].sha256() == part.small[*entry.alias_of].sha256()) {
      held.at(KeyOf(part, *entry.alias_of)).tied[entry.name].push_back(rank);
      continue;
    }
    auto [it, inserted] =
        held.try_emplace(KeyOf(part, i), HeldContent{.holder = rank, .content = i});
    it->second.ranks.push_back(rank);
    if (inserted) mine.push_back(i);
  }
  return mine;
}

v1::BeginSaveResponse SaveAttempt::Answer(uint32_t rank) const {
  const RankPart& part = ranks.at(rank);
  const TensorImage& image = *plan->images.at(rank);
  v1::BeginSaveResponse response;
  response.set_plan_id(plan->plan_id);
  if (part.known_plan_id != plan->plan_id) AddPlacements(image, response);
  if (part.tensors != nullptr) {
    *response.mutable_tensors() = part.tensors->ToProto(image.image_bytes());
  }
  for (size_t i = 0; i < part.small_image.contents.size(); ++i) {
    v1::SmallPlacement* placement = response.add_small_placements();
    placement->set_content(part.small_image.contents[i]);
    placement->set_image_offset(part.small_image.file->piece_offset(i));
  }
  if (part.small_lease != nullptr) {
    *response.mutable_small() = part.small_lease->ToProto(part.small_image.image_bytes());
  }
  return response;
}

uint64_t SaveAttempt::LeasedEnd(uint32_t rank) const {
  const RankPart& part = ranks.at(rank);
  return part.window_offset + (part.tensors == nullptr ? 0 : part.tensors->size_bytes());
}

FileToPersist SaveAttempt::MakeFile(int index, DataFileLayoutPtr layout, const std::string& node,
                                    const std::string& store_path) const {
  return {.store_path = store_path,
          .job = key.job,
          .step = step,
          .file_name = DataFileName(key.epoch, key.save_number, node, index),
          .owner = world.owner,
          .layout = std::move(layout),
          .progress = progress};
}

FileToPersist SaveAttempt::TensorFile(uint32_t rank, const std::string& node,
                                      const std::string& store_path) const {
  return MakeFile(TensorFileIndex(rank), plan->images.at(rank)->file, node, store_path);
}

FileToPersist SaveAttempt::SmallFile(uint32_t rank, const std::string& node,
                                     const std::string& store_path) const {
  const RankPart& part = ranks.at(rank);
  FileToPersist file = MakeFile(SmallFileIndex(rank), part.small_image.file, node, store_path);
  for (size_t i = 0; i < part.small_image.contents.size(); ++i) {
    const uint32_t content = part.small_image.contents[i];
    file.expected.push_back(
        {.piece = i,
         .sha256 = part.small[content].sha256(),
         .name = absl::StrCat(part.layout->small[content].name, " of rank ", rank)});
  }
  return file;
}

void SaveAttempt::AddFile(uint32_t rank, bool is_small, PersistedFile file) {
  const RankPart& part = ranks.at(rank);
  const uint32_t file_index = static_cast<uint32_t>(files.size());
  files.push_back(std::move(file.file));
  const auto set_box = [&](v1::Piece& piece, const Box& box) {
    piece.set_file(file_index);
    for (int64_t offset : box.offsets) piece.add_offsets(offset);
    for (int64_t length : box.lengths) piece.add_lengths(length);
  };
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    if (!is_small) {
      const PlacedPiece& placed = plan->images.at(rank)->pieces[i];
      v1::WrittenPiece& written = pieces.emplace_back();
      written.set_rank(rank);
      written.set_shard(placed.shard);
      *written.mutable_piece() = std::move(file.pieces[i]);
      set_box(*written.mutable_piece(), placed.box);
      continue;
    }
    const uint32_t content = part.small_image.contents[i];
    const CheckedSmall& entry = part.layout->small[content];
    v1::WrittenSmall& written = small.emplace_back();
    written.set_name(entry.name);
    written.set_is_value(entry.is_value);
    written.set_sha256(part.small[content].sha256());
    Box box = WholeBox(entry.shape);
    if (entry.is_value) {
      box = WholeBox(Extents{static_cast<int64_t>(part.small[content].size_bytes())});
    }
    written.set_data_type(static_cast<v1::DataType>(entry.data_type));
    for (int64_t length : box.lengths) written.add_shape(length);
    *written.mutable_piece() = std::move(file.pieces[i]);
    set_box(*written.mutable_piece(), box);
    small_holders.emplace_back(rank, content);
  }
}

v1::CommitSaveRequest SaveAttempt::CommitRequest(const std::string& node, bool with_layouts) const {
  v1::CommitSaveRequest request;
  request.set_job(key.job);
  *request.mutable_attempt() = AttemptProto();
  request.set_step(step);
  request.set_node(node);
  if (plan != nullptr) request.set_plan_id(plan->plan_id);
  request.set_overwrite(overwrite);
  request.mutable_tags()->insert(tags.begin(), tags.end());
  for (v1::RankLayout& layout : RankLayouts(with_layouts)) *request.add_ranks() = std::move(layout);
  if (!error.ok()) {
    request.set_error_code(static_cast<int>(error.code()));
    request.set_error_message(std::string(error.message()));
    return request;
  }
  request.mutable_files()->Add(files.begin(), files.end());
  request.mutable_pieces()->Add(pieces.begin(), pieces.end());
  // Only now: a rank that begins late may name what another has written already.
  std::map<std::pair<uint32_t, uint32_t>, const HeldContent*> by_holder;
  for (const auto& [identity, content] : held) {
    by_holder[{content.holder, content.content}] = &content;
  }
  for (size_t i = 0; i < small.size(); ++i) {
    const HeldContent& content = *by_holder.at(small_holders[i]);
    *request.add_small() = NamedBy(small[i], content.ranks);
    for (const auto& [name, ranks] : content.tied) {
      v1::WrittenSmall& tied = *request.add_small() = NamedBy(small[i], ranks);
      tied.set_name(name);
    }
  }
  double blocked_seconds = 0;
  for (const auto& [rank, part] : ranks) {
    blocked_seconds = std::max(blocked_seconds, part.blocked_seconds);
  }
  request.set_blocked_seconds(blocked_seconds);
  request.set_snapshot_seconds(SecondsBetween(started, snapshot_finished));
  request.set_persist_seconds(SecondsBetween(snapshot_finished, persist_finished));
  return request;
}

void SaveAttempt::ReleaseLeases() {
  for (auto& [rank, part] : ranks) {
    const bool may_write = part.answered && !part.finished && part.alive;
    if (may_write) continue;
    part.tensors.reset();
    part.small_lease.reset();
  }
}

void SaveAttempt::ReclaimLeases() {
  for (auto& [rank, part] : ranks) {
    for (ArenaLeasePtr* lease : {&part.tensors, &part.small_lease}) {
      if (*lease != nullptr) (*lease)->Quarantine();
      lease->reset();
    }
  }
}

void SaveAttempt::DropWhatIsOver() {
  ended_bytes = bytes();
  earlier_plan.reset();
  plan.reset();
  files = {};
  pieces = {};
  small = {};
  small_holders = {};
  held.clear();
  tags.clear();
  for (auto& [rank, part] : ranks) {
    part.layout.reset();
    part.small = {};
    part.small_image = {};
    part.tensor_file.reset();
    part.small_file.reset();
    part.known_plan_id = {};
  }
}

}  // namespace ckptd
