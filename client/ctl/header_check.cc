#include "client/ctl/header_check.h"

#include <cstdint>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "storage/format/data_file.h"
#include "storage/format/text.h"

namespace ckptd {
namespace {

using Fields = google::protobuf::Map<std::string, google::protobuf::Value>;

constexpr size_t kLengthBytes = 8;

uint64_t LittleEndian64(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

// One header entry as comparable text: numbers are exact below 2^53.
struct Entry {
  std::string data_type;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> data_offsets;

  std::string ToString() const {
    return absl::StrCat(data_type, " [", absl::StrJoin(shape, ","), "] at ",
                        absl::StrJoin(data_offsets, ".."));
  }
  friend bool operator==(const Entry&, const Entry&) = default;
};

std::vector<uint64_t> Numbers(const Fields& fields, const std::string& key) {
  std::vector<uint64_t> numbers;
  auto found = fields.find(key);
  if (found == fields.end()) return numbers;
  for (const google::protobuf::Value& value : found->second.list_value().values()) {
    numbers.push_back(static_cast<uint64_t>(value.number_value()));
  }
  return numbers;
}

Entry EntryOf(const google::protobuf::Value& value) {
  const Fields& fields = value.struct_value().fields();
  auto type = fields.find("dtype");
  return {.data_type = type == fields.end() ? "" : type->second.string_value(),
          .shape = Numbers(fields, "shape"),
          .data_offsets = Numbers(fields, "data_offsets")};
}

Entry EntryExpected(const ExpectedPiece& expected, size_t header_bytes) {
  const v1::Piece& piece = *expected.piece;
  Entry entry;
  entry.shape.assign(piece.lengths().begin(), piece.lengths().end());
  if (expected.data_type == DataType::kC128) {  // see data_file.h
    entry.data_type = "U8";
    entry.shape.push_back(16);
  } else {
    entry.data_type = DataTypeName(expected.data_type);
  }
  const uint64_t begin = piece.file_offset() - header_bytes;
  entry.data_offsets = {begin, begin + piece.size_bytes()};
  return entry;
}

Box BoxOf(const v1::Piece& piece) {
  Box box;
  box.offsets.assign(piece.offsets().begin(), piece.offsets().end());
  box.lengths.assign(piece.lengths().begin(), piece.lengths().end());
  return box;
}

// Whole small tensors and values may lie there as one rank's copy: "name@rank3".
std::string FindKey(const std::map<std::string, Entry>& entries, const ExpectedPiece& expected,
                    const Entry& wanted) {
  const std::string key = PieceKey(expected.name, expected.shape, BoxOf(*expected.piece));
  if (entries.count(key) != 0) return key;
  const std::string prefix = absl::StrCat(EscapeName(expected.name), "@rank");
  for (auto it = entries.lower_bound(prefix);
       it != entries.end() && absl::StartsWith(it->first, prefix); ++it) {
    if (it->second == wanted) return it->first;
  }
  return key;
}

}  // namespace

std::vector<std::string> CheckHeader(std::string_view header,
                                     const std::vector<ExpectedPiece>& pieces) {
  if (header.size() < kLengthBytes || LittleEndian64(header) != header.size() - kLengthBytes) {
    return {"the header's length field disagrees with the manifest"};
  }
  google::protobuf::Struct parsed;
  const std::string_view json = header.substr(kLengthBytes);
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(json.data(), json.size()), &parsed);
  if (!status.ok()) return {absl::StrCat("the header is no JSON: ", status.ToString())};
  std::map<std::string, Entry> entries;
  for (const auto& [key, value] : parsed.fields()) entries.emplace(key, EntryOf(value));

  // Tied small tensors share one piece, which has the key of one of them.
  std::set<std::string> found_places;
  for (const ExpectedPiece& expected : pieces) {
    const Entry wanted = EntryExpected(expected, header.size());
    auto found = entries.find(FindKey(entries, expected, wanted));
    if (found != entries.end() && found->second == wanted) found_places.insert(wanted.ToString());
  }
  std::vector<std::string> problems;
  for (const ExpectedPiece& expected : pieces) {
    const Entry wanted = EntryExpected(expected, header.size());
    const std::string key = FindKey(entries, expected, wanted);
    auto found = entries.find(key);
    if (found == entries.end()) {
      if (found_places.count(wanted.ToString()) != 0) continue;
      problems.push_back(absl::StrCat("the header has no key ", Printable(key)));
    } else if (found->second != wanted) {
      problems.push_back(absl::StrCat("the header says ", Printable(key), " is ",
                                      found->second.ToString(), ", the manifest ",
                                      wanted.ToString()));
    }
  }
  return problems;
}

}  // namespace ckptd
