#include "storage/format/manifest.h"

#include <functional>

#include "storage/format/checksum.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

void FillPiece(v1::Piece* piece, uint64_t file_offset, uint64_t size_bytes,
               const std::vector<uint64_t>& offsets, const std::vector<uint64_t>& lengths) {
  piece->set_file_offset(file_offset);
  piece->set_size_bytes(size_bytes);
  piece->mutable_offsets()->Add(offsets.begin(), offsets.end());
  piece->mutable_lengths()->Add(lengths.begin(), lengths.end());
  if (size_bytes > 0) piece->add_chunk_crc32c(0x12345678);
}

// One of everything: a tensor of two pieces, its alias, a per-rank tensor, a value.
v1::Manifest SmallManifest() {
  v1::Manifest manifest;
  manifest.set_job("gpt");
  manifest.set_step(40);
  manifest.set_world_size(4);
  manifest.set_chunk_bytes(kChunkBytes);
  (*manifest.mutable_tags())["purpose"] = "test";
  v1::DataFile* file = manifest.add_files();
  file->set_path("step-40/data-e1s3-node0-0.safetensors");
  file->set_header_bytes(4096);
  file->set_size_bytes(4096 + 100);

  v1::TensorEntry* weight = manifest.add_tensors();
  weight->set_name("a.weight");
  weight->set_data_type(v1::DATA_TYPE_F32);
  weight->add_shape(4);
  weight->add_shape(3);
  FillPiece(weight->add_pieces(), 4096, 24, {0, 0}, {2, 3});
  FillPiece(weight->add_pieces(), 4120, 24, {2, 0}, {2, 3});
  v1::TensorEntry* tied = manifest.add_tensors();
  *tied = *weight;
  tied->set_name("b.weight");
  tied->clear_pieces();
  tied->set_alias_of("a.weight");

  v1::PerRankEntry* rng = manifest.add_per_rank();
  rng->set_name("rng");
  rng->set_data_type(v1::DATA_TYPE_U8);
  rng->add_shape(5);
  for (uint32_t i = 0; i < 2; ++i) {
    v1::PerRankCopy* copy = rng->add_copies();
    copy->add_ranks(i);
    copy->add_ranks(i + 2);
    FillPiece(copy->mutable_piece(), 4144 + 5 * i, 5, {0}, {5});
  }
  v1::ValueEntry* epoch = manifest.add_values();
  epoch->set_name("epoch");
  FillPiece(epoch->add_copies()->mutable_piece(), 4160, 9, {0}, {9});
  return manifest;
}

absl::Status Decode(std::string_view bytes) {
  return DecodeManifest(bytes, "/store/gpt/step-40/manifest.pb").status();
}

// Writes the frame's checksum again, so that only what else was changed is wrong.
std::string WithChecksum(std::string bytes) {
  const auto part = [&](size_t at, size_t count) {
    return std::as_bytes(std::span<const char>(bytes.data() + at, count));
  };
  const uint32_t crc = Crc32c(part(32, bytes.size() - 32), Crc32c(part(0, 28)));
  for (int i = 0; i < 4; ++i) bytes[28 + i] = static_cast<char>(crc >> (8 * i));
  return bytes;
}

TEST_CASE("a manifest comes back as it was written, byte for byte the same each time") {
  const v1::Manifest manifest = SmallManifest();
  const std::string bytes = EncodeManifest(manifest);
  const auto decoded = DecodeManifest(bytes, "x");
  REQUIRE(decoded.ok());
  CHECK(EncodeManifest(*decoded) == bytes);
  CHECK(decoded->tensors(0).pieces(1).chunk_crc32c(0) == 0x12345678);
}

TEST_CASE("invariant 3: a manifest with any one bit flipped is refused") {
  const std::string bytes = EncodeManifest(SmallManifest());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] ^= static_cast<char>(1 << bit);
      if (!absl::IsDataLoss(Decode(damaged))) FAIL("bit " << bit << " of byte " << at);
    }
  }
}

TEST_CASE("invariant 1: a manifest cut at any byte, or with bytes behind it, is refused") {
  const std::string bytes = EncodeManifest(SmallManifest());
  for (size_t size = 0; size < bytes.size(); ++size) {
    if (!absl::IsDataLoss(Decode(std::string_view(bytes).substr(0, size)))) FAIL("at " << size);
  }
  CHECK(absl::IsDataLoss(Decode(bytes + '\0')));
  CHECK(std::string(Decode("").message()).find("step-40/manifest.pb") != std::string::npos);
}

TEST_CASE("a manifest of a newer version, or that requires an unknown feature, says so") {
  const std::string bytes = EncodeManifest(SmallManifest());
  std::string newer = bytes;
  newer[8] = 2;
  CHECK(absl::IsFailedPrecondition(Decode(WithChecksum(newer))));
  for (int bit = 0; bit < 64; ++bit) {
    std::string featured = bytes;
    featured[12 + bit / 8] ^= static_cast<char>(1 << (bit % 8));
    const absl::Status status = Decode(WithChecksum(featured));
    CHECK(absl::IsFailedPrecondition(status));
    CHECK(std::string(status.message()).find("newer ckptd") != std::string::npos);
  }
}

TEST_CASE("a frame around something else is refused") {
  std::string bytes = EncodeManifest(v1::Manifest()).substr(0, 32);
  const std::string body = "\xFF\xFF no protobuf";
  bytes[20] = static_cast<char>(body.size());
  CHECK(absl::IsDataLoss(Decode(WithChecksum(bytes + body))));
  CHECK(absl::IsDataLoss(Decode(EncodeManifest(v1::Manifest()))));
}

struct Damage {
  const char* name;
  std::function<void(v1::Manifest&)> apply;
};

// A forged manifest has a good checksum: every field that a load uses is checked.
const Damage kDamages[] = {
    {"job", [](auto& m) { m.set_job("../gpt"); }},
    {"no ranks", [](auto& m) { m.set_world_size(0); }},
    {"chunk size 0", [](auto& m) { m.set_chunk_bytes(0); }},
    {"chunk size odd", [](auto& m) { m.set_chunk_bytes(1000); }},
    {"chunk size large", [](auto& m) { m.set_chunk_bytes(2 << 20); }},
    {"path up", [](auto& m) { m.mutable_files(0)->set_path("../other/data"); }},
    {"path up inside", [](auto& m) { m.mutable_files(0)->set_path("step-1/../../data"); }},
    {"path absolute", [](auto& m) { m.mutable_files(0)->set_path("/etc/passwd"); }},
    {"path empty", [](auto& m) { m.mutable_files(0)->set_path(""); }},
    {"path with NUL", [](auto& m) { m.mutable_files(0)->set_path(std::string("a\0b", 3)); }},
    {"path doubled", [](auto& m) { *m.add_files() = m.files(0); }},
    {"header unaligned", [](auto& m) { m.mutable_files(0)->set_header_bytes(4000); }},
    {"header behind end", [](auto& m) { m.mutable_files(0)->set_header_bytes(8192); }},
    {"file too large", [](auto& m) { m.mutable_files(0)->set_size_bytes(~uint64_t{0}); }},
    {"type", [](auto& m) { m.mutable_tensors(0)->set_data_type(v1::DataType(99)); }},
    {"shape too large", [](auto& m) { m.mutable_tensors(0)->set_shape(0, ~uint64_t{0}); }},
    {"shape overflows", [](auto& m) { m.mutable_tensors(0)->set_shape(0, uint64_t{1} << 62); }},
    {"65 dimensions",
     [](auto& m) {
       for (int i = 0; i < 63; ++i) m.mutable_tensors(0)->add_shape(1);
     }},
    {"hole", [](auto& m) { m.mutable_tensors(0)->mutable_pieces()->RemoveLast(); }},
    {"overlap", [](auto& m) { *m.mutable_tensors(0)->add_pieces() = m.tensors(0).pieces(0); }},
    {"box outside", [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_offsets(0, 3); }},
    {"box huge",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_offsets(0, ~uint64_t{0}); }},
    {"box of less dimensions",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->mutable_offsets()->RemoveLast(); }},
    {"piece size", [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_size_bytes(20); }},
    {"piece in no file", [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_file(1); }},
    {"piece in header",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_file_offset(4095); }},
    {"piece behind end",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_file_offset(4196 - 23); }},
    {"piece offset huge",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->set_file_offset(~uint64_t{0} - 8); }},
    {"checksum missing",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->clear_chunk_crc32c(); }},
    {"checksum more",
     [](auto& m) { m.mutable_tensors(0)->mutable_pieces(1)->add_chunk_crc32c(1); }},
    {"name empty", [](auto& m) { m.mutable_tensors(0)->set_name(""); }},
    {"names unsorted", [](auto& m) { m.mutable_tensors()->SwapElements(0, 1); }},
    {"name doubled", [](auto& m) { *m.add_values() = m.values(0); }},
    {"name in two lists", [](auto& m) { m.mutable_values(0)->set_name("rng"); }},
    {"alias of nothing", [](auto& m) { m.mutable_tensors(1)->set_alias_of("none"); }},
    {"alias of itself", [](auto& m) { m.mutable_tensors(1)->set_alias_of("b.weight"); }},
    {"alias of other shape", [](auto& m) { m.mutable_tensors(1)->set_shape(0, 5); }},
    {"alias with pieces",
     [](auto& m) { *m.mutable_tensors(1)->add_pieces() = m.tensors(0).pieces(0); }},
    {"no copies", [](auto& m) { m.mutable_per_rank(0)->clear_copies(); }},
    {"rank outside world",
     [](auto& m) { m.mutable_per_rank(0)->mutable_copies(1)->set_ranks(1, 4); }},
    {"rank twice", [](auto& m) { m.mutable_per_rank(0)->mutable_copies(1)->set_ranks(0, 0); }},
    {"ranks descending",
     [](auto& m) {
       m.mutable_per_rank(0)->mutable_copies(1)->mutable_ranks()->SwapElements(0, 1);
     }},
    {"copy for all beside another",
     [](auto& m) { m.mutable_per_rank(0)->mutable_copies(1)->clear_ranks(); }},
    {"copy not whole",
     [](auto& m) {
       v1::Piece* piece = m.mutable_per_rank(0)->mutable_copies(1)->mutable_piece();
       piece->set_lengths(0, 4);
       piece->set_size_bytes(4);
     }},
    {"value not bytes",
     [](auto& m) { m.mutable_values(0)->mutable_copies(0)->mutable_piece()->set_lengths(0, 8); }},
    {"value not at 0",
     [](auto& m) { m.mutable_values(0)->mutable_copies(0)->mutable_piece()->set_offsets(0, 1); }},
    {"value without piece", [](auto& m) { m.mutable_values(0)->mutable_copies(0)->clear_piece(); }},
};

TEST_CASE("invariant 7: a forged manifest with any one field wrong is refused") {
  REQUIRE(CheckManifest(SmallManifest()).ok());
  for (const Damage& damage : kDamages) {
    v1::Manifest manifest = SmallManifest();
    damage.apply(manifest);
    INFO(damage.name);
    CHECK(absl::IsDataLoss(Decode(EncodeManifest(manifest))));
  }
}

TEST_CASE("an unknown encoding is a newer ckptd's, and names the entry") {
  v1::Manifest manifest = SmallManifest();
  manifest.mutable_tensors(0)->mutable_pieces(1)->set_encoding(v1::Encoding(7));
  const absl::Status status = Decode(EncodeManifest(manifest));
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(std::string(status.message()).find("a.weight") != std::string::npos);
}

TEST_CASE("empty tensors and empty values need no bytes and no checksums") {
  v1::Manifest manifest = SmallManifest();
  v1::TensorEntry* empty = manifest.add_tensors();
  empty->set_name("c");
  empty->set_data_type(v1::DATA_TYPE_F64);
  empty->add_shape(0);
  v1::ValueEntry* value = manifest.add_values();
  value->set_name("nothing");
  FillPiece(value->add_copies()->mutable_piece(), 4196, 0, {0}, {0});
  CHECK(CheckManifest(manifest).ok());
}

}  // namespace
}  // namespace ckptd
