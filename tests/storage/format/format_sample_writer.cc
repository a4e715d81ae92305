// Writes one data file with every data type and the hardest names, for
// tests/python/test_storage_format.py to open with the stock safetensors library.
//   format_sample_writer OUTPUT_FILE
// Each piece's bytes count up from its index in the list below (BOOL: modulo 2).
#include <cstdio>
#include <string>
#include <vector>

#include "storage/format/data_file.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: format_sample_writer OUTPUT_FILE\n");
    return 2;
  }
  std::vector<ckptd::DataFilePiece> pieces;
  for (int number = 1; number <= 17; ++number) {
    const ckptd::DataType type = *ckptd::DataTypeFromNumber(number);
    pieces.push_back({"type." + std::string(ckptd::DataTypeName(type)), type, {2, 3}});
  }
  std::string every;
  for (int c = 1; c < 0x80; ++c) every.push_back(static_cast<char>(c));
  every += "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  pieces.push_back({ckptd::EscapeName(every), ckptd::DataType::kU8, {1}});
  pieces.push_back({ckptd::EscapeName("__metadata__"), ckptd::DataType::kU8, {1}});
  const ckptd::Extents shape{4, 6};
  pieces.push_back(
      {ckptd::PieceKey("cut", shape, ckptd::Box{{0, 2}, {4, 3}}), ckptd::DataType::kF32, {4, 3}});
  pieces.push_back({ckptd::RankKey("rng", 3), ckptd::DataType::kU8, {5}});
  pieces.push_back({"empty", ckptd::DataType::kBF16, {0, 7}});
  pieces.push_back({"scalar", ckptd::DataType::kI64, {}});

  const auto layout =
      ckptd::DataFileLayout::Create(pieces, {{"job", "gpt \"quoted\"\n"}, {"step", "40"}});
  if (!layout.ok()) {
    std::fprintf(stderr, "%s\n", std::string(layout.status().message()).c_str());
    return 1;
  }
  std::string image = layout->header();
  image.resize(layout->file_bytes());
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool is_bool = pieces[i].data_type == ckptd::DataType::kBool;
    for (uint64_t at = 0; at < layout->piece_bytes(i); ++at) {
      const uint64_t value = i + at;
      image[layout->piece_offset(i) + at] = static_cast<char>(is_bool ? value % 2 : value);
    }
  }
  std::FILE* const file = std::fopen(argv[1], "wb");
  if (file == nullptr) return 1;
  const bool written = std::fwrite(image.data(), 1, image.size(), file) == image.size();
  return std::fclose(file) == 0 && written ? 0 : 1;
}
