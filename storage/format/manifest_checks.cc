// Everything that a load relies on without looking again. Manifests lie in folders
// that belong to a job's user, so a forged one must be refused as well as a damaged one.
#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/data_file.h"
#include "storage/format/manifest.h"
#include "storage/format/text.h"
#include "storage/layout/box.h"
#include "storage/layout/data_type.h"

namespace ckptd {
namespace {

constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();
constexpr uint64_t kMaxChunkBytes = 1 << 20;
constexpr uint64_t kLargestElementBytes = 16;
constexpr size_t kMaxPathBytes = 1024;

using Numbers = google::protobuf::RepeatedField<uint64_t>;

absl::Status Wrong(absl::string_view what, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(what, ": ", why));
}

absl::Status Within(absl::string_view what, const absl::Status& status) {
  return Wrong(what, status.message());
}

// Numbers of the disk as extents; nullopt where one is above 2^63 - 1.
std::optional<Extents> ToExtents(const Numbers& numbers) {
  Extents extents;
  extents.reserve(numbers.size());
  for (const uint64_t number : numbers) {
    if (number > kMaxBytes) return std::nullopt;
    extents.push_back(static_cast<int64_t>(number));
  }
  return extents;
}

absl::Status CheckPath(const std::string& path) {
  if (path.empty() || path.size() > kMaxPathBytes || !IsValidUtf8(path) ||
      path.find('\0') != std::string::npos) {
    return absl::DataLossError("its path is empty, too long or not text");
  }
  for (const absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") {
      return absl::DataLossError("its path is not a plain relative path");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFiles(const v1::Manifest& manifest) {
  absl::flat_hash_set<absl::string_view> paths;
  for (int i = 0; i < manifest.files_size(); ++i) {
    const v1::DataFile& file = manifest.files(i);
    const std::string what = absl::StrCat("file ", i, " ", Printable(file.path()));
    if (absl::Status status = CheckPath(file.path()); !status.ok()) return Within(what, status);
    if (!paths.insert(file.path()).second) return Wrong(what, "it is listed twice");
    if (file.size_bytes() > kMaxBytes) return Wrong(what, "its size is not below 2^63");
    if (file.header_bytes() == 0 || file.header_bytes() % 4096 != 0 ||
        file.header_bytes() > kMaxHeaderBytes || file.header_bytes() > file.size_bytes()) {
      return Wrong(what,
                   absl::StrCat("its header has ", file.header_bytes(),
                                " bytes, which no data file of ", file.size_bytes(), " bytes has"));
    }
  }
  return absl::OkStatus();
}

// One tensor's type and shape, checked.
struct TensorType {
  uint64_t element_bytes = 0;
  Extents shape;
};

absl::StatusOr<TensorType> CheckType(int data_type, const Numbers& shape) {
  TensorType type;
  const std::optional<DataType> known = DataTypeFromNumber(data_type);
  if (!known.has_value()) {
    return absl::DataLossError(absl::StrCat("there is no data type ", data_type));
  }
  type.element_bytes = ElementBytes(*known);
  const std::optional<Extents> extents = ToExtents(shape);
  if (!extents.has_value()) return absl::DataLossError("its shape has a length of 2^63 or more");
  type.shape = *extents;
  if (absl::Status status = ValidateShape(type.shape, type.element_bytes); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  return type;
}

// The range in its file, its encoding and checksums.
absl::Status CheckStorage(const v1::Manifest& manifest, const v1::Piece& piece) {
  if (piece.encoding() != v1::ENCODING_RAW) {
    return absl::FailedPreconditionError(
        absl::StrCat("its encoding ", static_cast<int>(piece.encoding()),
                     " is not known to this ckptd; read it with a newer ckptd"));
  }
  if (piece.file() >= static_cast<uint32_t>(manifest.files_size())) {
    return absl::DataLossError(
        absl::StrCat("it names file ", piece.file(), " of ", manifest.files_size()));
  }
  const v1::DataFile& file = manifest.files(static_cast<int>(piece.file()));
  if (piece.file_offset() < file.header_bytes() || piece.file_offset() > file.size_bytes() ||
      piece.size_bytes() > file.size_bytes() - piece.file_offset()) {
    return absl::DataLossError(absl::StrCat("its ", piece.size_bytes(), " bytes at offset ",
                                            piece.file_offset(), " are not among the data of ",
                                            file.path(), " (", file.header_bytes(), " to ",
                                            file.size_bytes(), ")"));
  }
  const uint64_t chunks = piece.size_bytes() / manifest.chunk_bytes() +
                          (piece.size_bytes() % manifest.chunk_bytes() != 0);
  if (static_cast<uint64_t>(piece.chunk_crc32c_size()) != chunks) {
    return absl::DataLossError(
        absl::StrCat("it has ", piece.chunk_crc32c_size(), " checksums for ", chunks, " chunks"));
  }
  return absl::OkStatus();
}

// The piece's box, when all about the piece is right.
absl::StatusOr<Box> CheckPiece(const v1::Manifest& manifest, const TensorType& type,
                               const v1::Piece& piece) {
  const std::optional<Extents> offsets = ToExtents(piece.offsets());
  const std::optional<Extents> lengths = ToExtents(piece.lengths());
  if (!offsets.has_value() || !lengths.has_value()) {
    return absl::DataLossError("its box has a number of 2^63 or more");
  }
  Box box{*offsets, *lengths};
  if (absl::Status status = ValidateBox(box, type.shape, type.element_bytes); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  const uint64_t bytes = Volume(box) * type.element_bytes;
  if (piece.size_bytes() != bytes) {
    return absl::DataLossError(absl::StrCat("it has ", piece.size_bytes(), " bytes, its box ",
                                            ToString(box), " has ", bytes));
  }
  if (absl::Status status = CheckStorage(manifest, piece); !status.ok()) return status;
  return box;
}

// As `status`, with the entry and the piece before its message.
absl::Status InPiece(const absl::Status& status, absl::string_view what, int index) {
  return absl::Status(status.code(), absl::StrCat(what, ", piece ", index, ": ", status.message()));
}

absl::Status CheckTensor(const v1::Manifest& manifest, const v1::TensorEntry& tensor,
                         absl::string_view what) {
  const absl::StatusOr<TensorType> type = CheckType(tensor.data_type(), tensor.shape());
  if (!type.ok()) return Within(what, type.status());
  if (!tensor.alias_of().empty()) {
    if (tensor.pieces_size() > 0) return Wrong(what, "an alias has no pieces of its own");
    return absl::OkStatus();
  }
  std::vector<Box> boxes;
  boxes.reserve(tensor.pieces_size());
  for (int i = 0; i < tensor.pieces_size(); ++i) {
    absl::StatusOr<Box> box = CheckPiece(manifest, *type, tensor.pieces(i));
    if (!box.ok()) return InPiece(box.status(), what, i);
    boxes.push_back(*std::move(box));
  }
  if (absl::Status status = CheckExactCover(type->shape, boxes); !status.ok()) {
    return Within(what, status);
  }
  return absl::OkStatus();
}

// Copies of one entry: either one for all ranks, or one or more for disjoint sets.
template <typename Copies, typename CheckCopyPiece>
absl::Status CheckCopies(const v1::Manifest& manifest, const Copies& copies, absl::string_view what,
                         const CheckCopyPiece& check_piece) {
  if (copies.empty()) return Wrong(what, "it has no copies");
  absl::flat_hash_set<uint32_t> seen;
  for (int i = 0; i < copies.size(); ++i) {
    const v1::PerRankCopy& copy = copies[i];
    if (copy.ranks().empty() && copies.size() > 1) {
      return Wrong(what, "a copy for all ranks is not the only one");
    }
    for (int r = 0; r < copy.ranks_size(); ++r) {
      const uint32_t rank = copy.ranks(r);
      if (rank >= manifest.world_size() || (r > 0 && rank <= copy.ranks(r - 1)) ||
          !seen.insert(rank).second) {
        return Wrong(what, absl::StrCat("rank ", rank, " in copy ", i,
                                        " is out of order, there twice, or not in the world"));
      }
    }
    if (absl::Status status = check_piece(copy.piece()); !status.ok()) {
      return InPiece(status, what, i);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPerRank(const v1::Manifest& manifest, const v1::PerRankEntry& entry,
                          absl::string_view what) {
  const absl::StatusOr<TensorType> type = CheckType(entry.data_type(), entry.shape());
  if (!type.ok()) return Within(what, type.status());
  return CheckCopies(manifest, entry.copies(), what, [&](const v1::Piece& piece) -> absl::Status {
    const absl::StatusOr<Box> box = CheckPiece(manifest, *type, piece);
    if (!box.ok()) return box.status();
    if (*box == WholeBox(type->shape)) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("it is ", ToString(*box), " and not the whole tensor"));
  });
}

absl::Status CheckValue(const v1::Manifest& manifest, const v1::ValueEntry& entry,
                        absl::string_view what) {
  return CheckCopies(manifest, entry.copies(), what, [&](const v1::Piece& piece) -> absl::Status {
    if (piece.offsets_size() != 1 || piece.offsets(0) != 0 || piece.size_bytes() > kMaxBytes) {
      return absl::DataLossError("it is not a row of bytes");
    }
    TensorType bytes{1, {static_cast<int64_t>(piece.size_bytes())}};
    return CheckPiece(manifest, bytes, piece).status();
  });
}

// Names of one list: valid, ascending, and in none of the lists before.
template <typename Entries, typename CheckEntry>
absl::Status CheckEntries(const Entries& entries, absl::string_view kind,
                          absl::flat_hash_set<absl::string_view>* names,
                          const CheckEntry& check_entry) {
  for (int i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i].name();
    const std::string what = absl::StrCat(kind, " ", Printable(name));
    if (absl::Status status = ValidateEntryName(name); !status.ok()) return Within(what, status);
    if (i > 0 && name <= entries[i - 1].name()) {
      return Wrong(what, "its name is there twice or out of order");
    }
    if (!names->insert(name).second) return Wrong(what, "its name is also another entry's");
    if (absl::Status status = check_entry(entries[i], what); !status.ok()) return status;
  }
  return absl::OkStatus();
}

const v1::TensorEntry* FindTensor(const v1::Manifest& manifest, const std::string& name) {
  const auto& tensors = manifest.tensors();
  const auto it = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const v1::TensorEntry& tensor, const std::string& n) { return tensor.name() < n; });
  return it != tensors.end() && it->name() == name ? &*it : nullptr;
}

// Once all names are known to be sorted.
absl::Status CheckAliases(const v1::Manifest& manifest) {
  for (const v1::TensorEntry& tensor : manifest.tensors()) {
    if (tensor.alias_of().empty()) continue;
    const v1::TensorEntry* const target = FindTensor(manifest, tensor.alias_of());
    if (target == nullptr || !target->alias_of().empty() ||
        target->data_type() != tensor.data_type() ||
        !std::equal(target->shape().begin(), target->shape().end(), tensor.shape().begin(),
                    tensor.shape().end())) {
      return Wrong(absl::StrCat("tensor ", Printable(tensor.name())),
                   absl::StrCat("it is an alias of ", Printable(tensor.alias_of()),
                                ", which is no stored tensor of the same type and shape"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const v1::Manifest& manifest) {
  if (absl::Status status = ValidateJobName(manifest.job()); !status.ok()) {
    return absl::DataLossError(status.message());
  }
  if (manifest.world_size() == 0) return absl::DataLossError("its world has no ranks");
  if (manifest.chunk_bytes() == 0 || manifest.chunk_bytes() > kMaxChunkBytes ||
      manifest.chunk_bytes() % kLargestElementBytes != 0) {
    return absl::DataLossError(absl::StrCat(manifest.chunk_bytes(), " bytes is no chunk size"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckManifest(const v1::Manifest& manifest) {
  if (absl::Status status = CheckNumbers(manifest); !status.ok()) return status;
  if (absl::Status status = CheckFiles(manifest); !status.ok()) return status;
  absl::flat_hash_set<absl::string_view> names;
  absl::Status status = CheckEntries(
      manifest.tensors(), "tensor", &names,
      [&](const auto& entry, const auto& what) { return CheckTensor(manifest, entry, what); });
  if (!status.ok()) return status;
  status = CheckEntries(
      manifest.per_rank(), "per-rank tensor", &names,
      [&](const auto& entry, const auto& what) { return CheckPerRank(manifest, entry, what); });
  if (!status.ok()) return status;
  status = CheckEntries(
      manifest.values(), "value", &names,
      [&](const auto& entry, const auto& what) { return CheckValue(manifest, entry, what); });
  if (!status.ok()) return status;
  return CheckAliases(manifest);
}

}  // namespace ckptd
