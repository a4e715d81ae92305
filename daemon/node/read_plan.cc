#include "daemon/node/read_plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/extent_allocator.h"
#include "storage/file_system/file_system.h"
#include "storage/layout/box_copy.h"

namespace ckptd {
namespace {

// Reads this close together cost less as one.
constexpr uint64_t kMergeGapBytes = 64 << 10;

struct ChunkRange {
  uint64_t first = 0;
  uint64_t end = 0;
};

struct PieceView {
  const v1::WantedPiece& wanted;
  uint32_t index;
  Box box;
  uint64_t element_bytes;
  uint64_t size;
};

absl::Status Wrong(const v1::WantedPiece& wanted, absl::string_view what) {
  return absl::InternalError(
      absl::StrCat("the coordinator's load plan for ", wanted.name(), ": ", what));
}

absl::StatusOr<PieceView> CheckPiece(const v1::PlanLoadResponse& plan, uint32_t index) {
  const v1::WantedPiece& wanted = plan.pieces(index);
  const v1::Piece& piece = wanted.piece();
  std::optional<DataType> type = DataTypeFromNumber(wanted.data_type());
  if (!type.has_value()) return Wrong(wanted, "unknown data type");
  PieceView view{.wanted = wanted,
                 .index = index,
                 .box = {ToExtents(piece.offsets()), ToExtents(piece.lengths())},
                 .element_bytes = ElementBytes(*type),
                 .size = piece.size_bytes()};
  if (view.box.offsets.size() != view.box.lengths.size() ||
      !ValidateShape(view.box.lengths, view.element_bytes).ok() ||
      static_cast<uint64_t>(Volume(view.box)) * view.element_bytes != view.size) {
    return Wrong(wanted, "the piece's box and size don't agree");
  }
  if (piece.encoding() != v1::ENCODING_RAW) return Wrong(wanted, "unknown encoding");
  if (piece.file() >= static_cast<uint32_t>(plan.files_size())) return Wrong(wanted, "no file");
  const uint64_t file_bytes = plan.files(piece.file()).size_bytes();
  if (piece.file_offset() > file_bytes || view.size > file_bytes - piece.file_offset()) {
    return Wrong(wanted, "the piece lies outside its file");
  }
  const uint64_t chunks = (view.size + plan.chunk_bytes() - 1) / plan.chunk_bytes();
  if (static_cast<uint64_t>(piece.chunk_crc32c_size()) != chunks) {
    return Wrong(wanted, "the number of checksums is not the number of chunks");
  }
  return view;
}

absl::StatusOr<std::vector<ChunkRange>> ChunksFor(
    const PieceView& piece, const WindowTarget& target,
    const std::map<uint32_t, CheckedLayoutPtr>& layouts, uint64_t chunk_bytes) {
  auto layout = layouts.find(target.rank);
  if (layout == layouts.end()) return Wrong(piece.wanted, "a rank that is not of this node");
  const uint64_t chunks = (piece.size + chunk_bytes - 1) / chunk_bytes;
  if (target.is_small) return std::vector<ChunkRange>{{0, chunks}};
  if (target.index >= layout->second->shards.size()) return Wrong(piece.wanted, "no such shard");
  const Box& wanted = layout->second->shards[target.index].box;
  if (wanted.dimensions() != piece.box.dimensions()) {
    return Wrong(piece.wanted, "piece and shard differ in dimensions");
  }
  std::vector<ChunkRange> ranges;
  const std::optional<Box> common = Intersect(piece.box, wanted);
  if (!common.has_value()) return ranges;
  const uint64_t chunk_elements = chunk_bytes / piece.element_bytes;
  for (const ElementRange& range : WantedRanges(piece.box, {&*common, 1}, chunk_elements)) {
    const uint64_t first = range.first / chunk_elements;
    const uint64_t end = (range.end + chunk_elements - 1) / chunk_elements;
    if (!ranges.empty() && first <= ranges.back().end) {
      ranges.back().end = std::max(ranges.back().end, end);
    } else {
      ranges.push_back({first, end});
    }
  }
  return ranges;
}

// The chunks that any target wants, once, cut into windows.
std::vector<ChunkRange> Windows(std::vector<ChunkRange> wanted, uint64_t most_chunks) {
  std::sort(wanted.begin(), wanted.end(),
            [](const ChunkRange& a, const ChunkRange& b) { return a.first < b.first; });
  std::vector<ChunkRange> windows;
  uint64_t covered = 0;
  for (const ChunkRange& range : wanted) {
    for (uint64_t at = std::max(range.first, covered); at < range.end;) {
      const bool extends = !windows.empty() && windows.back().end == at &&
                           windows.back().end - windows.back().first < most_chunks;
      if (!extends) windows.push_back({at, at});
      const uint64_t room = most_chunks - (windows.back().end - windows.back().first);
      windows.back().end = at = std::min(range.end, at + room);
    }
    covered = std::max(covered, range.end);
  }
  return windows;
}

struct PlacedPart {
  uint32_t file = 0;
  uint64_t file_offset = 0;
  ReadPart part;
};

absl::Status AddParts(const PieceView& piece, const std::map<uint32_t, CheckedLayoutPtr>& layouts,
                      uint64_t chunk_bytes, uint64_t most_chunks, std::vector<PlacedPart>& parts) {
  std::vector<std::pair<WindowTarget, std::vector<ChunkRange>>> by_target;
  std::vector<ChunkRange> all;
  for (const v1::PieceTarget& target : piece.wanted.targets()) {
    const bool is_small = target.has_small();
    WindowTarget checked{target.rank(), is_small, is_small ? target.small() : target.shard()};
    absl::StatusOr<std::vector<ChunkRange>> ranges =
        ChunksFor(piece, checked, layouts, chunk_bytes);
    if (!ranges.ok()) return ranges.status();
    all.insert(all.end(), ranges->begin(), ranges->end());
    by_target.emplace_back(checked, *std::move(ranges));
  }
  std::stable_sort(by_target.begin(), by_target.end(),
                   [](const auto& a, const auto& b) { return a.first.rank < b.first.rank; });
  for (const ChunkRange& window : Windows(std::move(all), most_chunks)) {
    PlacedPart& placed = parts.emplace_back();
    const uint64_t begin = window.first * chunk_bytes;
    placed.file = piece.wanted.piece().file();
    placed.file_offset = piece.wanted.piece().file_offset() + begin;
    placed.part = {.piece = piece.index,
                   .piece_offset = begin,
                   .length = std::min(window.end * chunk_bytes, piece.size) - begin};
    for (const auto& [target, ranges] : by_target) {
      const bool wants = std::any_of(ranges.begin(), ranges.end(), [&](const ChunkRange& range) {
        return range.first < window.end && window.first < range.end;
      });
      if (wants) placed.part.targets.push_back(target);
    }
  }
  return absl::OkStatus();
}

std::vector<PlannedRead> Merge(std::vector<PlacedPart> parts, uint64_t read_bytes) {
  std::sort(parts.begin(), parts.end(), [](const PlacedPart& a, const PlacedPart& b) {
    return std::pair(a.file, a.file_offset) < std::pair(b.file, b.file_offset);
  });
  std::vector<PlannedRead> reads;
  for (PlacedPart& placed : parts) {
    const uint64_t begin = RoundDown(placed.file_offset, kIoAlignmentBytes);
    const uint64_t end = RoundUp(placed.file_offset + placed.part.length, kIoAlignmentBytes);
    const bool joins = !reads.empty() && reads.back().file == placed.file &&
                       begin <= reads.back().file_offset + reads.back().length + kMergeGapBytes &&
                       end - reads.back().file_offset <= read_bytes;
    if (!joins) {
      const bool shares = !reads.empty() && reads.back().file == placed.file &&
                          begin < reads.back().file_offset + reads.back().length;
      if (shares) reads.back().shares_last_block = true;
      reads.push_back({.file = placed.file, .file_offset = begin, .shares_first_block = shares});
    }
    PlannedRead& read = reads.back();
    read.length = std::max(read.length, end - read.file_offset);
    placed.part.buffer_offset = placed.file_offset - read.file_offset;
    read.parts.push_back(std::move(placed.part));
  }
  return reads;
}

}  // namespace

absl::StatusOr<std::vector<PlannedRead>> PlanReads(
    const v1::PlanLoadResponse& plan, const std::map<uint32_t, CheckedLayoutPtr>& layouts,
    uint64_t read_bytes) {
  const uint64_t chunk_bytes = plan.chunk_bytes();
  if (chunk_bytes == 0 || chunk_bytes % kIoAlignmentBytes != 0) {
    return absl::InternalError(absl::StrCat("a chunk size of ", chunk_bytes, " bytes"));
  }
  if (read_bytes < chunk_bytes + 2 * kIoAlignmentBytes) {
    return absl::InvalidArgumentError(absl::StrCat("windows of ", read_bytes,
                                                   " bytes can't hold a chunk of ", chunk_bytes,
                                                   ": start the daemon with larger ones"));
  }
  const uint64_t most_chunks = (read_bytes - 2 * kIoAlignmentBytes) / chunk_bytes;
  std::vector<PlacedPart> parts;
  for (int i = 0; i < plan.pieces_size(); ++i) {
    absl::StatusOr<PieceView> piece = CheckPiece(plan, i);
    if (!piece.ok()) return piece.status();
    if (piece->size == 0) continue;
    absl::Status status = AddParts(*piece, layouts, chunk_bytes, most_chunks, parts);
    if (!status.ok()) return status;
  }
  return Merge(std::move(parts), read_bytes);
}

}  // namespace ckptd
