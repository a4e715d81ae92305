#include "daemon/node/persist_blocks.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/catch.h"

namespace ckptd {
namespace {

constexpr uint64_t kPage = 4096;

// An image in parts of so many pages; the bytes are never touched.
std::vector<ArenaPart> Parts(const std::vector<uint64_t>& pages) {
  std::vector<ArenaPart> parts;
  uint64_t offset = 0;
  for (uint64_t count : pages) {
    auto* const address = reinterpret_cast<std::byte*>(uint64_t{1} << 40) + 7 * offset;
    parts.push_back({.image_offset = offset, .bytes = {address, count * kPage}});
    offset += count * kPage;
  }
  return parts;
}

std::vector<ImageChunk> Chunks(const std::vector<uint64_t>& offsets) {
  std::vector<ImageChunk> chunks;
  chunks.reserve(offsets.size());
  for (uint64_t offset : offsets) chunks.push_back({.offset = offset, .bytes = 1});
  return chunks;
}

TEST_CASE("blocks cover the file's pages once, and each chunk belongs to the block it begins in") {
  const std::vector<ArenaPart> parts = Parts({1, 5, 2, 9});
  const std::vector<ImageChunk> chunks =
      Chunks({1, kPage - 1, kPage, 3 * kPage, 3 * kPage + 1, 6 * kPage, 15 * kPage});
  const uint64_t file_bytes = GENERATE(1, kPage, 6 * kPage + 1, 16 * kPage, 17 * kPage);
  const uint64_t block_bytes = GENERATE(1, 2, 3, 100) * kPage;
  const std::vector<ImageBlock> blocks = ListBlocks(parts, 0, file_bytes, block_bytes, chunks);
  uint64_t covered = 0;
  size_t chunk = 0;
  for (const ImageBlock& block : blocks) {
    CHECK(block.offset == covered);
    CHECK(!block.bytes.empty());
    CHECK(block.bytes.size() <= block_bytes);
    CHECK(block.first_chunk == chunk);
    for (; chunk < block.end_chunk; ++chunk) {
      CHECK(chunks[chunk].offset >= block.offset);
      CHECK(chunks[chunk].offset < block.offset + block.bytes.size());
    }
    covered += block.bytes.size();
    for (const ArenaPart& part : parts) {
      if (block.offset < part.image_offset) continue;
      const uint64_t within = block.offset - part.image_offset;
      if (within >= part.bytes.size()) continue;
      CHECK(block.bytes.data() == part.bytes.data() + within);
      CHECK(within + block.bytes.size() <= part.bytes.size());
    }
  }
  CHECK(covered == (file_bytes + kPage - 1) / kPage * kPage);
  CHECK((chunk == chunks.size() || chunks[chunk].offset >= covered));
}

TEST_CASE("a window's blocks begin where it begins, and end with the file") {
  const std::vector<ArenaPart> parts = Parts({2, 3});
  const std::vector<ImageBlock> blocks = ListBlocks(parts, 10 * kPage, 13 * kPage + 1, kPage, {});
  REQUIRE(blocks.size() == 4);
  CHECK(blocks.front().offset == 10 * kPage);
  CHECK(blocks.front().bytes.data() == parts[0].bytes.data());
  CHECK(blocks.back().offset == 13 * kPage);
}

// The second piece lies first in the file, and one has nothing in it.
DataFileLayout SomeLayout() {
  const auto elements = [](uint64_t count) { return Extents{static_cast<int64_t>(count)}; };
  return *DataFileLayout::Create(
      {{.key = "a", .data_type = DataType::kU8, .lengths = elements(2 * kChunkBytes + 10)},
       {.key = "b", .data_type = DataType::kF32, .lengths = elements(kChunkBytes / 4 + 3)},
       {.key = "c", .data_type = DataType::kU8, .lengths = elements(0)},
       {.key = "d", .data_type = DataType::kU8, .lengths = elements(5)},
       {.key = "e", .data_type = DataType::kU8, .lengths = elements(kChunkBytes)}},
      {});
}

TEST_CASE("chunks are cut at a window's ends, each part for the same checksum, none lost") {
  const DataFileLayout layout = SomeLayout();
  const ImageChunks chunks(layout);
  const uint64_t border =
      layout.header_bytes() + GENERATE(as<uint64_t>(), 0, 1, kChunkBytes - 1, kChunkBytes,
                                       kChunkBytes + 12, kChunkBytes + 13, 2 * kChunkBytes + 12,
                                       3 * kChunkBytes + 22, 3 * kChunkBytes + 25,
                                       3 * kChunkBytes + 27, 4 * kChunkBytes + 27);
  std::map<size_t, std::pair<uint64_t, uint64_t>> joined;  // sum -> offset, bytes
  uint64_t at = 0;
  for (const auto& [begin, end] :
       {std::pair<uint64_t, uint64_t>{0, border}, {border, border}, {border, UINT64_MAX}}) {
    for (const ImageChunk& part : chunks.Within(begin, end)) {
      CHECK((part.bytes > 0 && part.offset >= begin && part.offset + part.bytes <= end));
      CHECK(part.offset >= at);
      at = part.offset + part.bytes;
      auto [whole, is_first] = joined.try_emplace(part.sum, part.offset, uint64_t{0});
      CHECK(whole->second.first + whole->second.second == part.offset);
      whole->second.second += part.bytes;
    }
  }
  size_t sum = 0;
  for (size_t i = 0; i < layout.pieces(); ++i) {
    for (uint64_t within = 0; within < layout.piece_bytes(i); within += kChunkBytes) {
      CHECK(joined[sum++] == std::pair(layout.piece_offset(i) + within,
                                       std::min(kChunkBytes, layout.piece_bytes(i) - within)));
    }
  }
  CHECK(joined.size() == sum);
  CHECK(chunks.count() == sum);
}

TEST_CASE("a piece's chunks restart at its beginning and its last one is what is left") {
  CHECK(ChunkCount(0) == 0);
  CHECK(ChunkCount(1) == 1);
  CHECK(ChunkCount(kChunkBytes) == 1);
  CHECK(ChunkCount(kChunkBytes + 1) == 2);
}

}  // namespace
}  // namespace ckptd
