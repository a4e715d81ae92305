#include "storage/format/data_file.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "storage/format/text.h"

namespace ckptd {
namespace {

constexpr uint64_t kHeaderAlignmentBytes = 4096;
constexpr uint64_t kLengthBytes = 8;
constexpr std::string_view kMetadataKey = "__metadata__";

// Type and shape as the file's header says them.
struct StoredType {
  absl::string_view name;
  int64_t extra_dimension = 0;  // 0: none
};

StoredType StoredTypeOf(DataType type) {
  // The format has no complex128: its bytes, with one more dimension.
  if (type == DataType::kC128) return {"U8", 16};
  // Every other name is the format's own.
  const std::string_view name = DataTypeName(type);
  return {absl::string_view(name.data(), name.size())};
}

absl::Status CheckPiece(const DataFilePiece& piece) {
  if (!IsValidUtf8(piece.key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file key ", Printable(piece.key), " is not valid UTF-8"));
  }
  if (piece.key == kMetadataKey) {
    return absl::InvalidArgumentError("the data file key \"__metadata__\" is reserved");
  }
  if (ElementBytes(piece.data_type) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file key ", Printable(piece.key), " has no data type"));
  }
  absl::Status status = ValidateShape(piece.lengths, ElementBytes(piece.data_type));
  if (!status.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("data file key ", Printable(piece.key), ": ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status CheckKeysAreUnique(const std::vector<DataFilePiece>& pieces) {
  absl::flat_hash_set<absl::string_view> keys;
  keys.reserve(pieces.size());
  for (const DataFilePiece& piece : pieces) {
    if (!keys.insert(piece.key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("data file key ", Printable(piece.key), " is there twice"));
    }
  }
  return absl::OkStatus();
}

// Indices of pieces in the order in which they lie in the file.
std::vector<size_t> FileOrder(const std::vector<DataFilePiece>& pieces) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return ElementBytes(pieces[a].data_type) > ElementBytes(pieces[b].data_type);
  });
  return order;
}

void AppendMetadata(const std::map<std::string, std::string>& metadata, std::string* json) {
  AppendJsonString(kMetadataKey, json);
  json->append(":{");
  bool first = true;
  for (const auto& [key, value] : metadata) {
    if (!first) json->push_back(',');
    first = false;
    AppendJsonString(key, json);
    json->push_back(':');
    AppendJsonString(value, json);
  }
  json->push_back('}');
}

// "key":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}
void AppendPiece(const DataFilePiece& piece, uint64_t begin, uint64_t end, std::string* json) {
  const StoredType type = StoredTypeOf(piece.data_type);
  Extents shape = piece.lengths;
  if (type.extra_dimension != 0) shape.push_back(type.extra_dimension);
  AppendJsonString(piece.key, json);
  absl::StrAppend(json, ":{\"dtype\":\"", type.name, "\",\"shape\":[", absl::StrJoin(shape, ","),
                  "],\"data_offsets\":[", begin, ",", end, "]}");
}

void AppendLittleEndian64(uint64_t value, std::string* out) {
  for (int shift = 0; shift < 64; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

// JSON with its length before it and spaces behind, up to the alignment.
std::string FrameHeader(const std::string& json) {
  const uint64_t unpadded = kLengthBytes + json.size();
  const uint64_t padded =
      (unpadded + kHeaderAlignmentBytes - 1) / kHeaderAlignmentBytes * kHeaderAlignmentBytes;
  std::string header;
  header.reserve(padded);
  AppendLittleEndian64(padded - kLengthBytes, &header);
  header += json;
  header.resize(padded, ' ');
  return header;
}

absl::Status TooManyForOneHeader(size_t pieces) {
  return absl::ResourceExhaustedError(
      absl::StrCat("the header of a data file of ", pieces, " pieces is above ", kMaxHeaderBytes,
                   " bytes, which readers refuse; spread the pieces over more files"));
}

}  // namespace

std::string EscapeName(std::string_view fqn) {
  std::string escaped;
  escaped.reserve(fqn.size());
  if (fqn.substr(0, 2) == "__") {
    escaped = "%5F%5F";
    fqn.remove_prefix(2);
  }
  for (const char c : fqn) {
    if (c == '%') {
      escaped += "%25";
    } else if (c == '@') {
      escaped += "%40";
    } else {
      escaped.push_back(c);
    }
  }
  return escaped;
}

std::string PieceKey(std::string_view fqn, std::span<const int64_t> shape, const Box& box) {
  std::string key = EscapeName(fqn);
  if (box == WholeBox(shape)) return key;
  for (int d = 0; d < box.dimensions(); ++d) {
    absl::StrAppend(&key, d == 0 ? "@" : ",", box.offsets[d], ":", box.lengths[d]);
  }
  return key;
}

std::string RankKey(std::string_view fqn, uint32_t rank) {
  return absl::StrCat(EscapeName(fqn), "@rank", rank);
}

absl::StatusOr<DataFileLayout> DataFileLayout::Create(
    std::vector<DataFilePiece> pieces, const std::map<std::string, std::string>& metadata) {
  for (const DataFilePiece& piece : pieces) {
    if (absl::Status status = CheckPiece(piece); !status.ok()) return status;
  }
  if (absl::Status status = CheckKeysAreUnique(pieces); !status.ok()) return status;
  for (const auto& [key, value] : metadata) {
    if (!IsValidUtf8(key) || !IsValidUtf8(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data file metadata ", Printable(key), " is not valid UTF-8"));
    }
  }

  DataFileLayout layout;
  layout.offsets_.resize(pieces.size());
  layout.sizes_.resize(pieces.size());
  std::string json = "{";
  AppendMetadata(metadata, &json);
  uint64_t data_bytes = 0;
  for (const size_t i : FileOrder(pieces)) {
    const DataFilePiece& piece = pieces[i];
    const uint64_t begin = data_bytes;
    layout.offsets_[i] = begin;
    layout.sizes_[i] = Volume(piece.lengths) * ElementBytes(piece.data_type);
    data_bytes += layout.sizes_[i];  // two below 2^63 can't wrap
    if (data_bytes > std::numeric_limits<int64_t>::max() - kMaxHeaderBytes) {
      return absl::InvalidArgumentError(absl::StrCat("a data file up to key ", Printable(piece.key),
                                                     " has nearly 2^63 bytes or more"));
    }
    json.push_back(',');
    AppendPiece(piece, begin, data_bytes, &json);
    if (json.size() > kMaxHeaderBytes) return TooManyForOneHeader(pieces.size());
  }
  json.push_back('}');

  layout.header_ = FrameHeader(json);
  if (layout.header_.size() > kMaxHeaderBytes) return TooManyForOneHeader(pieces.size());
  for (uint64_t& offset : layout.offsets_) offset += layout.header_.size();
  layout.file_bytes_ = layout.header_.size() + data_bytes;
  return layout;
}

}  // namespace ckptd
