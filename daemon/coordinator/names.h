// How ranks, shapes and lists are written in messages. Pure.
#ifndef CKPTD_DAEMON_COORDINATOR_NAMES_H_
#define CKPTD_DAEMON_COORDINATOR_NAMES_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "storage/layout/box.h"

namespace ckptd {

// Abseil's string_view is not always the standard's.
inline absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

// "rank 3", "ranks 0-2, 7": ascending numbers in, runs merged, at most 20 runs.
std::string RanksToString(std::span<const uint32_t> ascending_ranks);

// At most `limit` problems and about `most_bytes`, then "... and N more".
std::string JoinProblems(const std::vector<std::string>& problems, size_t limit = 100,
                         size_t most_bytes = size_t{256} << 10);

// "step 40 of job gpt".
std::string CheckpointName(std::string_view job, uint64_t step);

// Wire numbers as extents; what does not fit into 63 bits becomes -1, which
// ValidateShape and ValidateBox refuse.
template <typename Repeated>
Extents ToExtents(const Repeated& numbers) {
  Extents extents;
  for (uint64_t number : numbers) {
    extents.push_back(number > INT64_MAX ? -1 : static_cast<int64_t>(number));
  }
  return extents;
}

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_NAMES_H_
