#include "storage/format/checksum.h"

#include <string>

#include "tests/catch.h"

namespace ckptd {
namespace {

std::vector<std::byte> Filled(size_t bytes, int first, int step) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(first + step * int(i));
  return data;
}

TEST_CASE("CRC32C agrees with the vectors of RFC 3720, appendix B.4") {
  CHECK(Crc32c(Filled(32, 0x00, 0)) == 0x8a9136aa);
  CHECK(Crc32c(Filled(32, 0xff, 0)) == 0x62a8ab43);
  CHECK(Crc32c(Filled(32, 0, 1)) == 0x46dd794e);
  CHECK(Crc32c(Filled(32, 31, -1)) == 0x113fdb5c);
  CHECK(Crc32c({}) == 0);
  const std::string digits = "123456789";
  CHECK(Crc32c(std::as_bytes(std::span(digits.data(), digits.size()))) == 0xe3069283);
}

TEST_CASE("a CRC32C goes on from any cut") {
  const std::vector<std::byte> data = Filled(100, 3, 7);
  const std::span<const std::byte> all(data);
  for (size_t cut = 0; cut <= data.size(); ++cut) {
    CHECK(Crc32c(all.subspan(cut), Crc32c(all.first(cut))) == Crc32c(all));
  }
}

TEST_CASE("chunk checksums do not depend on the parts in which the bytes come") {
  const std::vector<std::byte> data = Filled(2 * kChunkBytes + 5, 1, 3);
  const std::span<const std::byte> all(data);
  const std::vector<uint32_t> expected = {Crc32c(all.first(kChunkBytes)),
                                          Crc32c(all.subspan(kChunkBytes, kChunkBytes)),
                                          Crc32c(all.subspan(2 * kChunkBytes))};
  for (const size_t part : {size_t{4096}, size_t{777'777}, kChunkBytes + 1, data.size()}) {
    ChunkChecksums checksums;
    for (size_t at = 0; at < data.size(); at += part) {
      checksums.Add(all.subspan(at, std::min(part, data.size() - at)));
    }
    CHECK(checksums.Finish() == expected);
    CHECK(checksums.Finish().empty());
  }
}

TEST_CASE("bytes that end on a chunk's border have no empty last chunk") {
  ChunkChecksums checksums;
  checksums.Add(Filled(kChunkBytes, 0, 1));
  CHECK(checksums.Finish().size() == 1);
}

}  // namespace
}  // namespace ckptd
