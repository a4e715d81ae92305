#include "daemon/node/read_plan.h"

#include <set>

#include "storage/file_system/file_system.h"
#include "tests/catch.h"
#include "tests/property.h"

namespace ckptd {
namespace {

constexpr uint64_t kChunk = kIoAlignmentBytes;
constexpr uint64_t kReadBytes = 5 * kIoAlignmentBytes;

struct Case {
  v1::PlanLoadResponse plan;
  std::map<uint32_t, CheckedLayoutPtr> layouts;
};

// One-dimensional U8 pieces, packed from an offset on; each wanted in part by some ranks.
Case AnyCase() {
  Case made;
  made.plan.set_chunk_bytes(kChunk);
  std::map<uint32_t, std::shared_ptr<CheckedLayout>> layouts;
  for (uint32_t rank = 0; rank < 3; ++rank) layouts[rank] = std::make_shared<CheckedLayout>();
  const int files = *rc::gen::inRange(1, 3);
  for (int file = 0; file < files; ++file) {
    uint64_t offset = kIoAlignmentBytes;
    const int pieces = *rc::gen::inRange(1, 6);
    for (int i = 0; i < pieces; ++i) {
      const int64_t bytes = *rc::gen::inRange<int64_t>(1, 12 * static_cast<int64_t>(kChunk));
      v1::WantedPiece* wanted = made.plan.add_pieces();
      wanted->set_name("t");
      wanted->set_data_type(v1::DATA_TYPE_U8);
      v1::Piece* piece = wanted->mutable_piece();
      piece->set_file(file);
      piece->set_file_offset(offset);
      piece->set_size_bytes(bytes);
      piece->set_encoding(v1::ENCODING_RAW);
      piece->add_offsets(0);
      piece->add_lengths(bytes);
      for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(kChunk))
        piece->add_chunk_crc32c(0);
      offset += bytes;
      for (auto& [rank, layout] : layouts) {
        if (*rc::gen::arbitrary<bool>()) continue;
        const int64_t first = *rc::gen::inRange<int64_t>(0, bytes);
        const int64_t length = *rc::gen::inRange<int64_t>(1, bytes - first + 1);
        v1::PieceTarget* target = wanted->add_targets();
        target->set_rank(rank);
        target->set_shard(layout->shards.size());
        layout->shards.push_back({.name = "t",
                                  .data_type = DataType::kU8,
                                  .shape = {bytes},
                                  .box = {{first}, {length}}});
      }
    }
    made.plan.add_files()->set_size_bytes(offset);
  }
  for (auto& [rank, layout] : layouts) made.layouts[rank] = layout;
  return made;
}

void CheckReads(const Case& given, const std::vector<PlannedRead>& reads) {
  std::set<std::pair<uint32_t, uint64_t>> chunks;  // piece, chunk
  std::map<std::pair<uint32_t, uint64_t>, int> blocks;
  const PlannedRead* before = nullptr;
  for (const PlannedRead& read : reads) {
    RC_ASSERT(read.length <= kReadBytes);
    RC_ASSERT(read.file_offset % kIoAlignmentBytes == 0u);
    RC_ASSERT(read.length % kIoAlignmentBytes == 0u);
    const uint64_t begin = read.file_offset + (read.shares_first_block ? kIoAlignmentBytes : 0);
    for (uint64_t at = begin; at < read.file_offset + read.length; at += kIoAlignmentBytes) {
      RC_ASSERT(++blocks[std::pair(read.file, at)] == 1);
    }
    const bool promised = before != nullptr && before->shares_last_block;
    RC_ASSERT(promised == read.shares_first_block);
    before = &read;
    for (const ReadPart& part : read.parts) {
      const v1::Piece& piece = given.plan.pieces(part.piece).piece();
      RC_ASSERT(part.piece_offset % kChunk == 0u);
      RC_ASSERT(part.buffer_offset + part.length <= read.length);
      RC_ASSERT(read.file_offset + part.buffer_offset == piece.file_offset() + part.piece_offset);
      for (uint64_t at = part.piece_offset; at < part.piece_offset + part.length; at += kChunk) {
        RC_ASSERT(chunks.insert({part.piece, at / kChunk}).second);
      }
    }
  }
  // Every wanted byte's chunk is there, for the rank that wants it.
  for (int i = 0; i < given.plan.pieces_size(); ++i) {
    for (const v1::PieceTarget& target : given.plan.pieces(i).targets()) {
      const Box& box = given.layouts.at(target.rank())->shards[target.shard()].box;
      for (int64_t at = box.offsets[0]; at < box.offsets[0] + box.lengths[0]; ++at) {
        bool given_to_rank = false;
        for (const PlannedRead& read : reads) {
          for (const ReadPart& part : read.parts) {
            const uint64_t byte = static_cast<uint64_t>(at);
            if (part.piece != static_cast<uint32_t>(i) || byte < part.piece_offset ||
                byte >= part.piece_offset + part.length) {
              continue;
            }
            for (const WindowTarget& one : part.targets) {
              given_to_rank |= one.rank == target.rank() && one.index == target.shard();
            }
          }
        }
        RC_ASSERT(given_to_rank);
        at += 511;  // a sample, so that the property stays quick
      }
    }
  }
}

TEST_CASE("invariant 5: planned reads hold each wanted chunk once, and each block once") {
  const bool ok = Holds("planned reads", [] {
    const Case given = AnyCase();
    absl::StatusOr<std::vector<PlannedRead>> reads =
        PlanReads(given.plan, given.layouts, kReadBytes);
    RC_ASSERT(reads.ok());
    CheckReads(given, *reads);
  });
  CHECK(ok);
}

TEST_CASE("a plan that lies about its pieces is refused by name") {
  v1::PlanLoadResponse plan;
  plan.set_chunk_bytes(kChunk);
  plan.add_files()->set_size_bytes(100);
  v1::WantedPiece* wanted = plan.add_pieces();
  wanted->set_name("layers.0.weight");
  wanted->set_data_type(v1::DATA_TYPE_U8);
  v1::Piece* piece = wanted->mutable_piece();
  piece->set_encoding(v1::ENCODING_RAW);
  piece->set_file_offset(90);
  piece->set_size_bytes(11);
  piece->add_offsets(0);
  piece->add_lengths(11);
  piece->add_chunk_crc32c(0);
  const absl::Status status = PlanReads(plan, {}, kReadBytes).status();
  CHECK(absl::IsInternal(status));
  CHECK(std::string(status.message()).find("layers.0.weight") != std::string::npos);
  CHECK(std::string(status.message()).find("outside its file") != std::string::npos);
}

}  // namespace
}  // namespace ckptd
