// What a save may be tagged with: checked where a trainer asks for it, and where a node
// reports it.
#ifndef CKPTD_PROTO_RPC_TAGS_H_
#define CKPTD_PROTO_RPC_TAGS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ckptd {

inline constexpr size_t kMostTags = 64;
inline constexpr size_t kLongestTagBytes = 1024;  // of a name, and of a value

// `tags` is a map of strings. INVALID_ARGUMENT with the limit that is passed.
template <typename Tags>
[[nodiscard]] absl::Status CheckTags(const Tags& tags) {
  if (tags.size() > kMostTags) {
    return absl::InvalidArgumentError(
        absl::StrCat(tags.size(), " tags; at most ", kMostTags, " are possible"));
  }
  for (const auto& [name, value] : tags) {
    if (!name.empty() && name.size() <= kLongestTagBytes && value.size() <= kLongestTagBytes) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("a tag with a name of ", name.size(), " bytes and a value of ", value.size(),
                     "; a name has 1 to ", kLongestTagBytes, ", a value at most as many"));
  }
  return absl::OkStatus();
}

}  // namespace ckptd

#endif  // CKPTD_PROTO_RPC_TAGS_H_
