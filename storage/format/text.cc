#include "storage/format/text.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace ckptd {
namespace {

constexpr size_t kPrintableBytes = 80;

// Bytes of the well-formed UTF-8 character at the front of `text`; 0 if there is none.
// Table 3-7 of the Unicode standard.
size_t Utf8CharacterBytes(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const auto continues = [&](size_t i, uint8_t low = 0x80, uint8_t high = 0xBF) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const uint8_t low = lead == 0xE0 ? 0xA0 : 0x80;   // shortest form
    const uint8_t high = lead == 0xED ? 0x9F : 0xBF;  // no surrogates
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const uint8_t low = lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xF4 ? 0x8F : 0xBF;  // U+10FFFF
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = Utf8CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

void AppendJsonString(std::string_view text, std::string* json) {
  json->push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json->push_back('\\');
      json->push_back(c);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      absl::StrAppendFormat(json, "\\u%04x", c);
    } else {
      json->push_back(c);
    }
  }
  json->push_back('"');
}

std::string Printable(std::string_view text) {
  const absl::string_view shown(text.data(), std::min(text.size(), kPrintableBytes));
  const std::string quoted = absl::StrCat("\"", absl::CHexEscape(shown), "\"");
  if (shown.size() == text.size()) return quoted;
  return absl::StrCat(quoted, "... (", text.size(), " bytes)");
}

}  // namespace ckptd
