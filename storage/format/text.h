// Strings that came from outside: UTF-8, JSON, and printing them safely.
#ifndef CKPTD_STORAGE_FORMAT_TEXT_H_
#define CKPTD_STORAGE_FORMAT_TEXT_H_

#include <string>
#include <string_view>

namespace ckptd {

// Well-formed UTF-8: shortest forms, no surrogates, nothing above U+10FFFF.
bool IsValidUtf8(std::string_view text);

// Appends `text` (valid UTF-8) as a JSON string, with its quotes.
void AppendJsonString(std::string_view text, std::string* json);

// For messages: quoted, what can't be printed escaped, a long text shortened with
// its length said.
std::string Printable(std::string_view text);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FORMAT_TEXT_H_
