#include "storage/format/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <utility>

namespace ckptd {

uint32_t Crc32c(std::span<const std::byte> data, uint32_t previous) {
  constexpr size_t kMaxCallBytes = 1 << 30;  // ISA-L takes the length as an int
  uint32_t state = ~previous;
  while (!data.empty()) {
    const std::span<const std::byte> part = data.first(std::min(data.size(), kMaxCallBytes));
    // ISA-L only reads, though its argument is not const.
    auto* bytes = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(part.data()));
    state = crc32_iscsi(bytes, static_cast<int>(part.size()), state);
    data = data.subspan(part.size());
  }
  return ~state;
}

void ChunkChecksums::Add(std::span<const std::byte> data) {
  while (!data.empty()) {
    const size_t take = std::min<uint64_t>(data.size(), kChunkBytes - in_chunk_bytes_);
    current_ = Crc32c(data.first(take), current_);
    in_chunk_bytes_ += take;
    data = data.subspan(take);
    if (in_chunk_bytes_ == kChunkBytes) EndChunk();
  }
}

void ChunkChecksums::EndChunk() {
  finished_.push_back(std::exchange(current_, 0));
  in_chunk_bytes_ = 0;
}

std::vector<uint32_t> ChunkChecksums::Finish() {
  if (in_chunk_bytes_ > 0) EndChunk();
  return std::exchange(finished_, {});
}

}  // namespace ckptd
