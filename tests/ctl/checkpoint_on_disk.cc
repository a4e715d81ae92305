#include "tests/ctl/checkpoint_on_disk.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"
#include "storage/format/data_file.h"
#include "storage/format/manifest.h"

namespace ckptd {
namespace {

constexpr int64_t kRows = 600;
constexpr int64_t kColumns = 1000;

std::span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

struct WrittenFile {
  std::vector<v1::Piece> pieces;
};

// Writes the file with some content and adds its entry; boxes are the caller's.
WrittenFile WriteDataFile(const std::string& job_folder, const std::string& name,
                          const std::vector<DataFilePiece>& pieces, v1::Manifest& manifest) {
  auto layout = DataFileLayout::Create(pieces, {{"ckptd", "1"}});
  if (!layout.ok()) throw std::runtime_error(layout.status().ToString());
  std::string content = layout->header();
  content.resize(layout->file_bytes());
  WrittenFile written;
  for (size_t i = 0; i < pieces.size(); ++i) {
    v1::Piece piece;
    piece.set_file(static_cast<uint32_t>(manifest.files_size()));
    piece.set_file_offset(layout->piece_offset(i));
    piece.set_size_bytes(layout->piece_bytes(i));
    for (uint64_t b = 0; b < piece.size_bytes(); ++b) {
      content[piece.file_offset() + b] = static_cast<char>(b * 31 + i);
    }
    ChunkChecksums checksums;
    checksums.Add(Bytes(std::string_view(content).substr(piece.file_offset(), piece.size_bytes())));
    for (const uint32_t crc : checksums.Finish()) piece.add_chunk_crc32c(crc);
    for (const int64_t length : pieces[i].lengths) {
      piece.add_offsets(0);
      piece.add_lengths(static_cast<uint64_t>(length));
    }
    written.pieces.push_back(piece);
  }
  v1::DataFile* entry = manifest.add_files();
  entry->set_path(StepFolder(40) + "/" + name);
  entry->set_size_bytes(content.size());
  entry->set_header_bytes(layout->header_bytes());
  entry->set_header_crc32c(Crc32c(Bytes(layout->header())));
  WriteAll(job_folder + "/" + entry->path(), content);
  return written;
}

Box HalfOfWeight(int half) { return {{half * kRows / 2, 0}, {kRows / 2, kColumns}}; }

DataFilePiece WeightPiece(int half) {
  const int64_t shape[] = {kRows, kColumns};
  return {.key = PieceKey("weight", shape, HalfOfWeight(half)),
          .data_type = DataType::kF32,
          .lengths = HalfOfWeight(half).lengths};
}

void SetShape(const std::vector<uint64_t>& shape, auto& entry) {
  for (const uint64_t length : shape) entry.add_shape(length);
}

}  // namespace

CheckpointOnDisk::CheckpointOnDisk() {
  std::filesystem::create_directories(folder());
  manifest_.set_job("gpt");
  manifest_.set_step(40);
  manifest_.mutable_attempt()->set_epoch(1);
  manifest_.mutable_attempt()->set_save_number(3);
  manifest_.set_world_size(2);
  manifest_.set_committed_unix_microseconds(1'800'000'000'000'000);
  manifest_.mutable_owner()->set_user_id(1000);
  manifest_.set_software_version("0.1.0");
  manifest_.set_chunk_bytes(kChunkBytes);
  (*manifest_.mutable_tags())["branch"] = "main";

  v1::TensorEntry* moment = manifest_.add_tensors();
  moment->set_name("moment");
  moment->set_data_type(v1::DATA_TYPE_C128);
  SetShape({3}, *moment);
  v1::TensorEntry* weight = manifest_.add_tensors();
  weight->set_name("weight");
  weight->set_data_type(v1::DATA_TYPE_F32);
  SetShape({kRows, kColumns}, *weight);
  v1::PerRankEntry* rng = manifest_.add_per_rank();
  rng->set_name("rng");
  rng->set_data_type(v1::DATA_TYPE_U8);
  SetShape({4}, *rng);
  manifest_.add_values()->set_name("epoch");

  WriteFirst();
  WriteSecond();
  CommitManifest(manifest_);
}

void CheckpointOnDisk::WriteFirst() {
  WrittenFile file = WriteDataFile(job_folder(), DataFileName(1, 3, "n0", 0),
                                   {WeightPiece(0),
                                    {.key = "moment", .data_type = DataType::kC128, .lengths = {3}},
                                    {.key = "rng", .data_type = DataType::kU8, .lengths = {4}},
                                    {.key = "epoch", .data_type = DataType::kU8, .lengths = {5}}},
                                   manifest_);
  *manifest_.mutable_tensors(1)->add_pieces() = file.pieces[0];
  *manifest_.mutable_tensors(0)->add_pieces() = file.pieces[1];
  v1::PerRankCopy* copy = manifest_.mutable_per_rank(0)->add_copies();
  copy->add_ranks(0);
  *copy->mutable_piece() = file.pieces[2];
  *manifest_.mutable_values(0)->add_copies()->mutable_piece() = file.pieces[3];
}

void CheckpointOnDisk::WriteSecond() {
  WrittenFile file = WriteDataFile(
      job_folder(), DataFileName(1, 3, "n1", 0),
      {WeightPiece(1), {.key = RankKey("rng", 1), .data_type = DataType::kU8, .lengths = {4}}},
      manifest_);
  v1::Piece& weight = *manifest_.mutable_tensors(1)->add_pieces();
  weight = file.pieces[0];
  weight.set_offsets(0, kRows / 2);
  v1::PerRankCopy* copy = manifest_.mutable_per_rank(0)->add_copies();
  copy->add_ranks(1);
  *copy->mutable_piece() = file.pieces[1];
}

void CheckpointOnDisk::CommitManifest(const v1::Manifest& manifest) {
  WriteAll(manifest_file(), EncodeManifest(manifest));
}

void CheckpointOnDisk::Flip(const std::string& path, uint64_t offset) {
  std::string content = ReadAll(path);
  content.at(offset) = static_cast<char>(content.at(offset) ^ 1);
  WriteAll(path, content);
}

}  // namespace ckptd
