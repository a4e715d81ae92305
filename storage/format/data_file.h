// Data files: valid safetensors files, laid out before a byte of them exists.
//
//   0            8                    header_bytes (multiple of 4096)     file_bytes
//   +------------+--------------------+-----------------------------------+
//   | u64 LE:    | JSON header,       | pieces, in order of falling       |
//   | JSON bytes | space-padded       | element size, no holes            |
//   +------------+--------------------+-----------------------------------+
//
// Keys: the FQN for a whole tensor, "FQN@o0:l0,o1:l1" for a box, "FQN@rank3" for
// one rank's copy; in the FQN '%', '@' and a leading "__" are percent-escaped.
// A type that the format lacks (complex128) is written as U8 with one more
// dimension; the manifest has the truth.
#ifndef CKPTD_STORAGE_FORMAT_DATA_FILE_H_
#define CKPTD_STORAGE_FORMAT_DATA_FILE_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/layout/box.h"
#include "storage/layout/data_type.h"

namespace ckptd {

// Headers above this are refused by readers in the field; a new file before it.
inline constexpr uint64_t kMaxHeaderBytes = 50'000'000;

std::string EscapeName(std::string_view fqn);
// Key of a box of a tensor of `shape`; the plain escaped FQN when it is whole.
std::string PieceKey(std::string_view fqn, std::span<const int64_t> shape, const Box& box);
std::string RankKey(std::string_view fqn, uint32_t rank);

struct DataFilePiece {
  std::string key;
  DataType data_type = DataType::kUnspecified;
  Extents lengths;
};

// Where everything lies in one data file. A value; immutable once made.
class DataFileLayout {
 public:
  // The places follow from the pieces' element sizes; pieces of equal element
  // size keep the order given. INVALID_ARGUMENT, naming the key, for two equal
  // keys, the reserved key "__metadata__", text that is not UTF-8, no data type, or
  // sizes that overflow; RESOURCE_EXHAUSTED for a header above kMaxHeaderBytes.
  static absl::StatusOr<DataFileLayout> Create(std::vector<DataFilePiece> pieces,
                                               const std::map<std::string, std::string>& metadata);

  // The first header_bytes() bytes of the file.
  const std::string& header() const { return header_; }
  uint64_t header_bytes() const { return header_.size(); }
  uint64_t file_bytes() const { return file_bytes_; }
  // Of pieces[i] as given to Create, from the file's first byte.
  uint64_t piece_offset(size_t i) const { return offsets_[i]; }
  uint64_t piece_bytes(size_t i) const { return sizes_[i]; }
  size_t pieces() const { return offsets_.size(); }

 private:
  DataFileLayout() = default;
  std::string header_;
  uint64_t file_bytes_ = 0;
  std::vector<uint64_t> offsets_;
  std::vector<uint64_t> sizes_;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_DATA_FILE_H_
