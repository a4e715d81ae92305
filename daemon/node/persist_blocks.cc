#include "daemon/node/persist_blocks.h"

#include <algorithm>

#include "daemon/node/extent_allocator.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

std::vector<ImageChunk> ListChunks(const DataFileLayout& layout) {
  std::vector<ImageChunk> chunks;
  for (size_t i = 0; i < layout.pieces(); ++i) {
    for (uint64_t at = 0; at < layout.piece_bytes(i); at += kChunkBytes) {
      chunks.push_back({.offset = layout.piece_offset(i) + at,
                        .bytes = std::min(kChunkBytes, layout.piece_bytes(i) - at),
                        .sum = chunks.size()});
    }
  }
  std::sort(chunks.begin(), chunks.end(),
            [](const ImageChunk& a, const ImageChunk& b) { return a.offset < b.offset; });
  return chunks;
}

std::vector<ImageChunk> CutChunks(std::span<const ImageChunk> chunks, uint64_t begin,
                                  uint64_t end) {
  std::vector<ImageChunk> cut;
  auto chunk = std::partition_point(chunks.begin(), chunks.end(), [&](const ImageChunk& other) {
    return other.offset + other.bytes <= begin;
  });
  for (; chunk != chunks.end() && chunk->offset < end; ++chunk) {
    const uint64_t first = std::max(begin, chunk->offset);
    const uint64_t last = std::min(end, chunk->offset + chunk->bytes);
    cut.push_back({.offset = first, .bytes = last - first, .sum = chunk->sum});
  }
  return cut;
}

std::vector<ImageBlock> ListBlocks(std::span<const ArenaPart> parts, uint64_t begin,
                                   uint64_t file_bytes, uint64_t block_bytes,
                                   std::span<const ImageChunk> chunks) {
  std::vector<ImageBlock> blocks;
  uint64_t left = RoundUp(file_bytes, kIoAlignmentBytes) - begin;
  size_t next_chunk = 0;
  for (const ArenaPart& part : parts) {
    for (uint64_t at = 0; at < part.bytes.size() && left > 0;) {
      const uint64_t length = std::min({block_bytes, part.bytes.size() - at, left});
      ImageBlock& block = blocks.emplace_back();
      block.offset = begin + part.image_offset + at;
      block.bytes = part.bytes.subspan(at, length);
      block.first_chunk = next_chunk;
      while (next_chunk < chunks.size() && chunks[next_chunk].offset < block.offset + length) {
        ++next_chunk;
      }
      block.end_chunk = next_chunk;
      at += length;
      left -= length;
    }
  }
  return blocks;
}

}  // namespace ckptd
