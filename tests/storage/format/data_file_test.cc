#include "storage/format/data_file.h"

#include <limits>

#include "tests/catch.h"

namespace ckptd {
namespace {

using Pieces = std::vector<DataFilePiece>;

std::string JsonOf(const DataFileLayout& layout) {
  std::string json = layout.header().substr(8);
  return json.substr(0, json.find_last_not_of(' ') + 1);
}

TEST_CASE("pieces lie packed behind the header in order of falling element size") {
  const auto layout = DataFileLayout::Create({{"a", DataType::kU8, {3}},
                                              {"b", DataType::kF32, {2, 2}},
                                              {"c", DataType::kC128, {1}},
                                              {"d", DataType::kF32, {}},
                                              {"e", DataType::kBF16, {5}}},
                                             {});
  REQUIRE(layout.ok());
  CHECK(layout->header_bytes() == 4096);
  CHECK(layout->piece_offset(2) == 4096);
  CHECK(layout->piece_offset(1) == 4096 + 16);
  CHECK(layout->piece_offset(3) == 4096 + 32);
  CHECK(layout->piece_offset(4) == 4096 + 36);
  CHECK(layout->piece_offset(0) == 4096 + 46);
  CHECK(layout->file_bytes() == 4096 + 49);
  CHECK(layout->piece_bytes(3) == 4);
}

TEST_CASE("the header is JSON of its recorded length, padded with spaces") {
  const auto layout = DataFileLayout::Create(
      {{"w", DataType::kF32, {2, 3}}, {"z", DataType::kC128, {2}}}, {{"job", "gpt"}});
  REQUIRE(layout.ok());
  CHECK(layout->header().substr(0, 8) == std::string("\xF8\x0F\0\0\0\0\0\0", 8));
  CHECK(JsonOf(*layout) == R"({"__metadata__":{"job":"gpt"},)"
                           R"("z":{"dtype":"U8","shape":[2,16],"data_offsets":[0,32]},)"
                           R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[32,56]}})");
}

TEST_CASE("a header that fills a block exactly is not padded by another") {
  // The shortest header for a key, then keys longer and longer.
  const size_t base = JsonOf(*DataFileLayout::Create({{"", DataType::kU8, {1}}}, {})).size();
  for (const int longer : {-1, 0, 1}) {
    const std::string key(4096 - 8 - base + longer, 'k');
    const auto layout = DataFileLayout::Create({{key, DataType::kU8, {1}}}, {});
    CHECK(layout->header_bytes() == (longer <= 0 ? 4096u : 8192u));
  }
}

TEST_CASE("keys escape what has a meaning in them") {
  CHECK(EscapeName("layer.0.weight") == "layer.0.weight");
  CHECK(EscapeName("a@b%c") == "a%40b%25c");
  CHECK(EscapeName("__metadata__") == "%5F%5Fmetadata__");
  CHECK(EscapeName("_a__") == "_a__");
  const Extents shape{4, 256};
  CHECK(PieceKey("w", shape, WholeBox(shape)) == "w");
  CHECK(PieceKey("w", shape, Box{{0, 128}, {4, 128}}) == "w@0:4,128:128");
  CHECK(PieceKey("w", Extents{}, Box{}) == "w");
  CHECK(RankKey("rng", 3) == "rng@rank3");
}

TEST_CASE("equal keys are refused by name") {
  const auto layout =
      DataFileLayout::Create({{"w", DataType::kU8, {1}}, {"w", DataType::kF32, {2}}}, {});
  CHECK(absl::IsInvalidArgument(layout.status()));
  CHECK(std::string(layout.status().message()).find("\"w\"") != std::string::npos);
}

TEST_CASE("a piece that no data file can hold is refused") {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  for (const Pieces& bad :
       {Pieces{{"a", DataType::kU8, {-1}}}, Pieces{{"a", DataType::kF32, {huge}}},
        Pieces{{"a", DataType::kU8, {huge}}, {"b", DataType::kU8, {huge}}},
        Pieces{{"a", DataType::kU8, Extents(65, 1)}}, Pieces{{"a", DataType::kUnspecified, {1}}},
        Pieces{{"a\xFF", DataType::kU8, {1}}}, Pieces{{"__metadata__", DataType::kU8, {1}}}}) {
    CHECK(absl::IsInvalidArgument(DataFileLayout::Create(bad, {}).status()));
  }
  CHECK(absl::IsInvalidArgument(DataFileLayout::Create({}, {{"k", "\xFF"}}).status()));
}

TEST_CASE("a header above what readers take is refused") {
  Pieces pieces;
  const std::string prefix(4000, 'k');
  for (int i = 0; i < 13'000; ++i) {
    pieces.push_back({prefix + std::to_string(i), DataType::kU8, {1}});
  }
  CHECK(absl::IsResourceExhausted(DataFileLayout::Create(pieces, {}).status()));
  pieces.resize(12'000);
  CHECK(DataFileLayout::Create(pieces, {}).ok());
}

TEST_CASE("a file without pieces is a header") {
  const auto layout = DataFileLayout::Create({}, {});
  REQUIRE(layout.ok());
  CHECK(layout->file_bytes() == 4096);
  CHECK(layout->pieces() == 0);
}

}  // namespace
}  // namespace ckptd
