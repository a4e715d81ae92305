// How a file's image is cut for writing: into blocks, which are written side by side,
// and into the chunks whose checksums are computed just before. Pure.
#ifndef CKPTD_DAEMON_NODE_PERSIST_BLOCKS_H_
#define CKPTD_DAEMON_NODE_PERSIST_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daemon/node/arena.h"
#include "storage/format/checksum.h"
#include "storage/format/data_file.h"

namespace ckptd {

// A part of a piece that has a checksum of its own; kChunkBytes, a piece's last one less.
struct ImageChunk {
  uint64_t offset = 0;  // in the image
  uint64_t bytes = 0;
  size_t sum = 0;  // which of the file's checksums: counted by piece, then ascending
};

// How many a piece has.
inline uint64_t ChunkCount(uint64_t piece_bytes) {
  return (piece_bytes + kChunkBytes - 1) / kChunkBytes;
}

// All chunks of a file. They are listed a window at a time: all at once they would take
// memory by the size of the file, while this takes it by the number of pieces.
class ImageChunks {
 public:
  ImageChunks() = default;  // none
  explicit ImageChunks(const DataFileLayout& layout);
  // Of the whole file.
  size_t count() const { return count_; }
  // What of them lies in [begin, end) of the image, ascending by offset.
  std::vector<ImageChunk> Within(uint64_t begin, uint64_t end) const;

 private:
  struct Piece {
    uint64_t offset = 0;  // in the image
    uint64_t bytes = 0;
    size_t first_sum = 0;
  };
  std::vector<Piece> pieces_;  // none empty, ascending by offset
  size_t count_ = 0;
};

// A contiguous run of memory to be written, with the chunks that begin in it (they may end
// in the next one): chunks[first_chunk, end_chunk).
struct ImageBlock {
  uint64_t offset = 0;  // in the image
  std::span<std::byte> bytes;
  size_t first_chunk = 0;
  size_t end_chunk = 0;
};

// Blocks of at most `block_bytes` (a multiple of 4 KiB), ascending, that cover a window of
// the image: `parts`, whose first byte is the image's byte `begin`, but nothing behind
// file_bytes rounded up to 4 KiB. `chunks` ascend by offset.
std::vector<ImageBlock> ListBlocks(std::span<const ArenaPart> parts, uint64_t begin,
                                   uint64_t file_bytes, uint64_t block_bytes,
                                   std::span<const ImageChunk> chunks);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_PERSIST_BLOCKS_H_
