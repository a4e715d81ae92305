#include "daemon/node/reader.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/node/extent_allocator.h"
#include "storage/format/checksum.h"

namespace ckptd {

std::string LoadReader::Path(uint32_t file) const {
  return absl::StrCat(job_folder_, "/", plan_->files(file).path());
}

absl::StatusOr<std::shared_ptr<ReadableFile>> LoadReader::Open(uint32_t file) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<ReadableFile>& open = files_[file];
  if (open != nullptr) return open;
  absl::StatusOr<std::unique_ptr<ReadableFile>> opened = file_system_.Open(Path(file), direct_io_);
  if (!opened.ok()) return opened.status();
  open = *std::move(opened);
  return open;
}

absl::Status LoadReader::Read(const PlannedRead& read, std::span<std::byte> buffer) {
  absl::StatusOr<std::shared_ptr<ReadableFile>> file = Open(read.file);
  if (!file.ok()) return file.status();
  const std::span<std::byte> bytes = buffer.first(read.length);
  uint64_t begin = 0;
  uint64_t end = read.length;
  absl::Status status;
  if (read.shares_first_block) {
    status = ReadShared(**file, {read.file, read.file_offset}, bytes.first(kIoAlignmentBytes));
    begin = kIoAlignmentBytes;
  }
  if (status.ok() && read.shares_last_block) {
    end -= kIoAlignmentBytes;
    status = ReadShared(**file, {read.file, read.file_offset + end}, bytes.subspan(end));
  }
  if (status.ok() && begin < end) {
    status = (*file)->ReadAt(read.file_offset + begin, bytes.subspan(begin, end - begin));
    if (status.ok()) bytes_read_ += end - begin;
  }
  if (!status.ok()) return status;
  for (const ReadPart& part : read.parts) {
    const std::optional<uint64_t> damage = FindDamage(part, [&](uint64_t at, uint64_t length) {
      return Crc32c(bytes.subspan(part.buffer_offset + at, length));
    });
    if (!damage.has_value()) continue;
    probe_.ChecksumMismatch();
    return DamageError(part, *damage);
  }
  return absl::OkStatus();
}

absl::Status LoadReader::ReadShared(const ReadableFile& file, BlockKey key,
                                    std::span<std::byte> block) {
  std::shared_ptr<SharedBlock> shared;
  {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<SharedBlock>& known = shared_blocks_[key];
    if (known == nullptr) known = std::make_shared<SharedBlock>();
    shared = known;
  }
  {
    absl::MutexLock lock(&shared->mutex);
    if (shared->bytes.empty()) {
      if (absl::Status status = file.ReadAt(key.second, block); !status.ok()) return status;
      bytes_read_ += block.size();
      shared->bytes.assign(reinterpret_cast<const char*>(block.data()), block.size());
      return absl::OkStatus();
    }
    memcpy(block.data(), shared->bytes.data(), block.size());
  }
  absl::MutexLock lock(&mutex_);
  shared_blocks_.erase(key);
  return absl::OkStatus();
}

std::optional<uint64_t> LoadReader::FindDamage(const ReadPart& part, RangeChecksum checksum) const {
  const v1::Piece& piece = plan_->pieces(static_cast<int>(part.piece)).piece();
  uint64_t chunk = part.piece_offset / plan_->chunk_bytes();
  for (uint64_t at = 0; at < part.length; at += plan_->chunk_bytes(), ++chunk) {
    const uint64_t length = std::min<uint64_t>(plan_->chunk_bytes(), part.length - at);
    if (checksum(at, length) != piece.chunk_crc32c(static_cast<int>(chunk))) return at;
  }
  return std::nullopt;
}

absl::Status LoadReader::DamageError(const ReadPart& part, uint64_t at) const {
  const v1::WantedPiece& wanted = plan_->pieces(static_cast<int>(part.piece));
  const uint64_t in_piece = part.piece_offset + at;
  const uint64_t length = std::min<uint64_t>(plan_->chunk_bytes(), part.length - at);
  return absl::DataLossError(
      absl::StrCat("checksum mismatch in ", Path(wanted.piece().file()), ": chunk ",
                   in_piece / plan_->chunk_bytes(), " of tensor ", wanted.name(), ", bytes ",
                   wanted.piece().file_offset() + in_piece, " to ",
                   wanted.piece().file_offset() + in_piece + length,
                   ": the file was damaged after it was written; load another checkpoint"));
}

bool LoadReader::IsIntact(const PlannedRead& read, const ArenaLease& image) const {
  for (const ReadPart& part : read.parts) {
    const uint64_t offset = read.file_offset + part.buffer_offset;
    const uint64_t element_bytes =
        ElementBytes(*DataTypeFromNumber(plan_->pieces(static_cast<int>(part.piece)).data_type()));
    uint64_t there = 0;
    for (const ArenaPart& memory : image.Cut(offset, part.length)) {
      if (memory.bytes.size() % element_bytes != 0) return false;
      there += memory.bytes.size();
    }
    if (there != part.length) return false;
    const auto checksum = [&](uint64_t at, uint64_t length) {
      uint32_t sum = 0;
      image.ForEachRun(offset + at, length,
                       [&](std::span<const std::byte> run) { sum = Crc32c(run, sum); });
      return sum;
    };
    if (FindDamage(part, checksum).has_value()) return false;
  }
  return true;
}

absl::Status LoadReader::VerifyHeader(uint32_t file, std::span<std::byte> buffer) {
  const v1::DataFile& expected = plan_->files(file);
  absl::StatusOr<std::shared_ptr<ReadableFile>> open = Open(file);
  if (!open.ok()) return open.status();
  if ((*open)->size_bytes() != expected.size_bytes()) {
    return absl::DataLossError(absl::StrCat(Path(file), " has ", (*open)->size_bytes(),
                                            " bytes, its manifest says ", expected.size_bytes()));
  }
  uint32_t sum = 0;
  const uint64_t step = RoundDown(buffer.size(), kIoAlignmentBytes);
  for (uint64_t at = 0; at < expected.header_bytes(); at += step) {
    const uint64_t length = std::min(step, expected.header_bytes() - at);
    const std::span<std::byte> bytes = buffer.first(RoundUp(length, kIoAlignmentBytes));
    if (absl::Status status = (*open)->ReadAt(at, bytes); !status.ok()) return status;
    sum = Crc32c(bytes.first(length), sum);
  }
  if (sum == expected.header_crc32c()) return absl::OkStatus();
  probe_.ChecksumMismatch();
  return absl::DataLossError(absl::StrCat("checksum mismatch in the header of ", Path(file),
                                          ": the file was damaged after it was written"));
}

}  // namespace ckptd
