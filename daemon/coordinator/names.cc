#include "daemon/coordinator/names.h"

#include "absl/strings/str_cat.h"

namespace ckptd {

std::string RanksToString(std::span<const uint32_t> ranks) {
  constexpr int kMaxRuns = 20;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  int runs = 0;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (runs == kMaxRuns) {
      absl::StrAppend(&text, " and ", ranks.size() - i, " more");
      break;
    }
    absl::StrAppend(&text, runs > 0 ? ", " : "", ranks[i]);
    if (end - i > 1) absl::StrAppend(&text, "-", ranks[end - 1]);
    i = end;
    ++runs;
  }
  return text;
}

std::string JoinProblems(const std::vector<std::string>& problems, size_t limit,
                         size_t most_bytes) {
  std::string text;
  size_t listed = 0;
  for (; listed < problems.size() && listed < limit; ++listed) {
    if (listed > 0 && text.size() + problems[listed].size() > most_bytes) break;
    absl::StrAppend(&text, listed > 0 ? "; " : "", problems[listed]);
  }
  if (listed < problems.size()) {
    absl::StrAppend(&text, "; ... and ", problems.size() - listed, " more");
  }
  return text;
}

std::string CheckpointName(std::string_view job, uint64_t step) {
  return absl::StrCat("step ", step, " of job ", Abseil(job));
}

}  // namespace ckptd
