#include "daemon/node/persist_blocks.h"

#include <algorithm>

#include "daemon/node/extent_allocator.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

ImageChunks::ImageChunks(const DataFileLayout& layout) {
  for (size_t i = 0; i < layout.pieces(); ++i) {
    const uint64_t bytes = layout.piece_bytes(i);
    if (bytes == 0) continue;
    pieces_.push_back({.offset = layout.piece_offset(i), .bytes = bytes, .first_sum = count_});
    count_ += ChunkCount(bytes);
  }
  std::sort(pieces_.begin(), pieces_.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
}

std::vector<ImageChunk> ImageChunks::Within(uint64_t begin, uint64_t end) const {
  std::vector<ImageChunk> chunks;
  auto piece = std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& other) {
    return other.offset + other.bytes <= begin;
  });
  for (; piece != pieces_.end() && piece->offset < end; ++piece) {
    const uint64_t piece_end = std::min(end, piece->offset + piece->bytes);
    uint64_t at = std::max(begin, piece->offset);
    while (at < piece_end) {
      const uint64_t chunk = (at - piece->offset) / kChunkBytes;
      const uint64_t chunk_end = std::min(piece_end, piece->offset + (chunk + 1) * kChunkBytes);
      chunks.push_back({.offset = at, .bytes = chunk_end - at, .sum = piece->first_sum + chunk});
      at = chunk_end;
    }
  }
  return chunks;
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
