// CRC32C (Castagnoli) of bytes and of chunk grids.
#ifndef CKPTD_STORAGE_FORMAT_CHECKSUM_H_
#define CKPTD_STORAGE_FORMAT_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ckptd {

// Every piece is cut into chunks of this size, the last one shorter, the grid
// starting at the piece's first byte. A multiple of every element size. A chunk is what is
// read and verified whole: small enough that an eighth of a matrix costs little more than an
// eighth of its bytes, large enough that a terabyte's checksums have 16 MB.
inline constexpr uint64_t kChunkBytes = uint64_t{256} << 10;

// The finished CRC32C (RFC 3720) of `data`, continuing from `previous`, the
// finished CRC32C of what came before it (0 for nothing).
uint32_t Crc32c(std::span<const std::byte> data, uint32_t previous = 0);

// The checksums of a piece whose bytes come in parts, in order.
class ChunkChecksums {
 public:
  void Add(std::span<const std::byte> data);
  // One per chunk of all that was added; none for no bytes. Leaves it empty.
  std::vector<uint32_t> Finish();

 private:
  void EndChunk();

  std::vector<uint32_t> finished_;
  uint64_t in_chunk_bytes_ = 0;
  uint32_t current_ = 0;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_CHECKSUM_H_
