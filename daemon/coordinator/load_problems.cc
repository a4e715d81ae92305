#include "daemon/coordinator/load_problems.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

// Of all lists together: whole within an error's message, with room for the words around
// them (thousands of long names).
constexpr size_t kMostListBytes = kMaxErrorMessageBytes - (size_t{64} << 10);

struct Heading {
  const char* text;
  const char* advice;
};

Heading HeadingOf(LoadProblems::Kind kind) {
  switch (kind) {
    case LoadProblems::Kind::kMissing:
      return {"missing", "not in the checkpoint; allow_missing skips them"};
    case LoadProblems::Kind::kExtra:
      return {"extra", "saved but wanted by no rank; allow_extra ignores them"};
    case LoadProblems::Kind::kShape:
      return {"of another shape", ""};
    case LoadProblems::Kind::kType:
      return {"of another type", "allow_cast converts them"};
    case LoadProblems::Kind::kKind:
      return {"of another kind", ""};
    case LoadProblems::Kind::kPerRank:
      return {"saved per rank", ""};
  }
  return {"wrong", ""};
}

}  // namespace

void LoadProblems::Add(Kind kind, std::string description, uint32_t rank) {
  ranks_[{kind, std::move(description)}].insert(rank);
}

void LoadProblems::AddExtra(std::string name) { ranks_[{Kind::kExtra, std::move(name)}]; }

absl::Status LoadProblems::ToStatus() const {
  if (ranks_.empty()) return absl::OkStatus();
  std::map<Kind, std::vector<std::string>> by_kind;
  for (const auto& [problem, ranks] : ranks_) {
    const std::vector<uint32_t> ascending(ranks.begin(), ranks.end());
    by_kind[problem.first].push_back(
        ascending.empty() ? problem.second
                          : absl::StrCat(problem.second, " (", RanksToString(ascending), ")"));
  }
  std::string text;
  for (const auto& [kind, lines] : by_kind) {
    const Heading heading = HeadingOf(kind);
    absl::StrAppend(&text, text.empty() ? "" : "; ", lines.size(), " ", heading.text,
                    *heading.advice == '\0' ? "" : absl::StrCat(" (", heading.advice, ")"), ": ",
                    JoinProblems(lines, lines.size(), kMostListBytes / by_kind.size()));
  }
  return absl::FailedPreconditionError(text);
}

}  // namespace ckptd
