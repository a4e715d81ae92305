// Content in which neighbouring bytes, and bytes a page apart, differ.
#ifndef CKPTD_TESTS_NODE_PATTERN_H_
#define CKPTD_TESTS_NODE_PATTERN_H_

#include <string>

namespace ckptd {

inline std::string Pattern(size_t bytes, char seed = 0) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(seed + i * 31 + i / 257);
  return text;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_NODE_PATTERN_H_
