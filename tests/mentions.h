// Whether an error says something.
#ifndef CKPTD_TESTS_MENTIONS_H_
#define CKPTD_TESTS_MENTIONS_H_

#include <string>

#include "absl/status/status.h"

namespace ckptd {

inline bool Mentions(const absl::Status& status, const std::string& part) {
  return std::string(status.message()).find(part) != std::string::npos;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_MENTIONS_H_
