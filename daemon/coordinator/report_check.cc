#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/manifest_builder.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "proto/rpc/tags.h"
#include "storage/file_system/file_system.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"

namespace ckptd {
namespace {

constexpr size_t kSha256Bytes = 32;

absl::Status CheckFile(const v1::CommitSaveRequest& report, const v1::DataFile& file) {
  const std::string folder = StepFolder(report.step()) + "/";
  const std::optional<DataFileNameParts> parts =
      file.path().rfind(folder, 0) == 0 ? ParseDataFileName(file.path().substr(folder.size()))
                                        : std::nullopt;
  if (!parts.has_value() || parts->epoch != report.attempt().epoch() ||
      parts->save_number != report.attempt().save_number() || parts->node != report.node()) {
    return absl::InvalidArgumentError(
        "its name is not one of this step's, attempt's and node's data files");
  }
  if (file.header_bytes() == 0 || file.header_bytes() % kIoAlignmentBytes != 0 ||
      file.header_bytes() > file.size_bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", file.header_bytes(), " bytes can't be in a file of ", file.size_bytes()));
  }
  return absl::OkStatus();
}

absl::Status CheckPiece(const v1::CommitSaveRequest& report, const v1::Piece& piece) {
  if (piece.file() >= static_cast<uint32_t>(report.files_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("it names file ", piece.file(), " of ", report.files_size()));
  }
  const v1::DataFile& file = report.files(static_cast<int>(piece.file()));
  if (piece.file_offset() < file.header_bytes() || piece.file_offset() > file.size_bytes() ||
      piece.size_bytes() > file.size_bytes() - piece.file_offset()) {
    return absl::InvalidArgumentError(absl::StrCat(
        piece.size_bytes(), " bytes at ", piece.file_offset(), " don't lie in the data of ",
        file.path(), ", bytes ", file.header_bytes(), " to ", file.size_bytes()));
  }
  const uint64_t chunks =
      piece.size_bytes() / kChunkBytes + (piece.size_bytes() % kChunkBytes == 0 ? 0 : 1);
  if (static_cast<uint64_t>(piece.chunk_crc32c_size()) != chunks) {
    return absl::InvalidArgumentError(absl::StrCat(piece.chunk_crc32c_size(), " checksums for ",
                                                   chunks, " chunks of ", piece.size_bytes(),
                                                   " bytes"));
  }
  if (piece.encoding() != v1::ENCODING_RAW) {
    return absl::InvalidArgumentError("its encoding is none that this version knows");
  }
  return absl::OkStatus();
}

// The piece is the whole of a small tensor, or the bytes of a value.
absl::Status CheckSmall(const v1::WrittenSmall& small) {
  if (absl::Status status = ValidateEntryName(small.name()); !status.ok()) return status;
  if (small.sha256().size() != kSha256Bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("its SHA-256 has ", small.sha256().size(), " bytes"));
  }
  if (small.ranks().empty()) return absl::InvalidArgumentError("no rank gave it");
  if (!std::is_sorted(small.ranks().begin(), small.ranks().end())) {
    return absl::InvalidArgumentError("its ranks are not ascending");
  }
  const v1::Piece& piece = small.piece();
  const DataType type =
      small.is_value() ? DataType::kU8
                       : DataTypeFromNumber(small.data_type()).value_or(DataType::kUnspecified);
  if (type == DataType::kUnspecified) {
    return absl::InvalidArgumentError("its data type is none that this version knows");
  }
  const Extents shape = small.is_value() ? Extents{static_cast<int64_t>(piece.size_bytes())}
                                         : ToExtents(small.shape());
  if (absl::Status status = ValidateShape(shape, ElementBytes(type)); !status.ok()) return status;
  const Box box{ToExtents(piece.offsets()), ToExtents(piece.lengths())};
  if (box != WholeBox(shape) ||
      piece.size_bytes() != static_cast<uint64_t>(Volume(shape)) * ElementBytes(type)) {
    return absl::InvalidArgumentError(absl::StrCat("its piece ", ToString(box), " of ",
                                                   piece.size_bytes(), " bytes is not the whole ",
                                                   ShapeToString(shape)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckReport(const v1::CommitSaveRequest& report) {
  if (absl::Status status = CheckTags(report.tags()); !status.ok()) return status;
  for (const v1::DataFile& file : report.files()) {
    if (absl::Status status = CheckFile(report, file); !status.ok()) {
      return Annotate(status, absl::StrCat("file ", file.path()));
    }
  }
  for (int i = 0; i < report.pieces_size(); ++i) {
    if (absl::Status status = CheckPiece(report, report.pieces(i).piece()); !status.ok()) {
      return Annotate(status, absl::StrCat("piece ", i));
    }
  }
  for (const v1::WrittenSmall& small : report.small()) {
    absl::Status status = CheckPiece(report, small.piece());
    if (status.ok()) status = CheckSmall(small);
    if (!status.ok()) return Annotate(status, absl::StrCat("small content ", small.name()));
  }
  return absl::OkStatus();
}

}  // namespace ckptd
