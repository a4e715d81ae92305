#include "daemon/runtime/flags.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/runtime/absl_view.h"
#include "daemon/runtime/quantity.h"

namespace ckptd {
namespace {

// Letters to insert, drop or change to make `b` of `a` (Levenshtein).
size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({change, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

template <typename Value, typename ToText>
absl::Status InRange(Value value, FlagSet::Range<Value> range, ToText to_text) {
  if (value >= range.least && value <= range.most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      to_text(value), " is not between ", to_text(range.least), " and ", to_text(range.most)));
}

}  // namespace

std::string NearestName(std::string_view word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t best = word.size() / 3 + 1;
  for (const std::string& name : known) {
    const size_t distance = EditDistance(word, name);
    if (distance < best || (distance == best && nearest.empty())) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

void FlagSet::Text(std::string name, std::string value_name, std::string help, std::string& value,
                   Check check) {
  Add({.name = std::move(name),
       .value_name = std::move(value_name),
       .help = std::move(help),
       .default_text = value,
       .set = [&value, check = std::move(check)](const std::string& text) {
         if (check) {
           if (absl::Status status = check(text); !status.ok()) return status;
         }
         value = text;
         return absl::OkStatus();
       }});
}

void FlagSet::Repeated(std::string name, std::string value_name, std::string help,
                       std::vector<std::string>& values, Check check) {
  Add({.name = std::move(name),
       .value_name = std::move(value_name),
       .help = std::move(help),
       .default_text = absl::StrJoin(values, ", "),
       .set =
           [&values, check = std::move(check), first = true](const std::string& text) mutable {
             if (std::exchange(first, false)) values.clear();
             if (check) {
               if (absl::Status status = check(text); !status.ok()) return status;
             }
             values.push_back(text);
             return absl::OkStatus();
           },
       .repeatable = true});
}

void FlagSet::Bytes(std::string name, std::string help, Range<uint64_t> range, uint64_t& value) {
  Add({.name = std::move(name),
       .value_name = "SIZE",
       .help = std::move(help),
       .default_text = ExactByteSize(value),
       .set = [&value, range](const std::string& text) {
         absl::StatusOr<uint64_t> bytes = ParseByteSize(text);
         if (!bytes.ok()) return bytes.status();
         absl::Status status = InRange(*bytes, range, ExactByteSize);
         if (status.ok()) value = *bytes;
         return status;
       }});
}

void FlagSet::Duration(std::string name, std::string help, Range<absl::Duration> range,
                       absl::Duration& value) {
  Add({.name = std::move(name),
       .value_name = "DURATION",
       .help = std::move(help),
       .default_text = DurationText(value),
       .set = [&value, range](const std::string& text) {
         absl::StatusOr<absl::Duration> duration = ParseDuration(text);
         if (!duration.ok()) return duration.status();
         absl::Status status = InRange(*duration, range, DurationText);
         if (status.ok()) value = *duration;
         return status;
       }});
}

void FlagSet::Choice(std::string name, std::vector<std::string> choices, std::string help,
                     std::string& value) {
  Check check = [choices](std::string_view text) {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Absl(text), "\" is none of ", absl::StrJoin(choices, ", ")));
  };
  Text(std::move(name), absl::StrJoin(choices, "|"), std::move(help), value, std::move(check));
}

void FlagSet::Switch(std::string name, std::string help, bool& value) {
  Add({.name = std::move(name), .help = std::move(help), .set = [&value](const std::string&) {
         value = true;
         return absl::OkStatus();
       }});
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> operands;
  std::vector<std::string> problems;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      operands.insert(operands.end(), arguments.begin() + static_cast<ptrdiff_t>(i) + 1,
                      arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      operands.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name =
        argument.starts_with("--") ? argument.substr(2, equals - 2) : argument.substr(0, equals);
    const bool has_value = equals != std::string::npos;
    Flag* flag = Find(name);
    if (flag == nullptr) {
      problems.push_back(Unknown(name));
    } else if (flag->value_name.empty() && has_value) {
      problems.push_back(absl::StrCat("--", name, " takes no value"));
    } else if (!flag->value_name.empty() && !has_value && i + 1 == arguments.size()) {
      problems.push_back(absl::StrCat("--", name, " needs a value: ", flag->value_name));
    } else {
      std::string value;
      if (has_value) {
        value = argument.substr(equals + 1);
      } else if (!flag->value_name.empty()) {
        value = arguments[++i];
      }
      if (absl::Status status = Set(*flag, value); !status.ok()) {
        problems.push_back(std::string(status.message()));
      }
    }
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return operands;
}

absl::Status FlagSet::Set(Flag& flag, const std::string& value) {
  if (std::exchange(flag.given, true) && !flag.repeatable) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag.name, " was given twice"));
  }
  absl::Status status = flag.set(value);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat("--", flag.name, ": ", status.message()));
}

std::string FlagSet::Help() const {
  constexpr size_t kColumn = 34;
  std::string help;
  for (const Flag& flag : flags_) {
    std::string line =
        absl::StrCat("  --", flag.name, flag.value_name.empty() ? "" : " ", flag.value_name);
    line += line.size() < kColumn ? std::string(kColumn - line.size(), ' ')
                                  : "\n" + std::string(kColumn, ' ');
    absl::StrAppend(&help, line, flag.help);
    if (flag.repeatable) absl::StrAppend(&help, "; may be repeated");
    if (!flag.default_text.empty()) absl::StrAppend(&help, " (default ", flag.default_text, ")");
    absl::StrAppend(&help, "\n");
  }
  return help;
}

void FlagSet::Add(Flag flag) { flags_.push_back(std::move(flag)); }

FlagSet::Flag* FlagSet::Find(std::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string FlagSet::Unknown(std::string_view name) const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  const std::string nearest = NearestName(name, names);
  return absl::StrCat("--", Absl(name), " is no option here",
                      nearest.empty() ? "; --help lists them all"
                                      : absl::StrCat("; did you mean --", nearest, "?"));
}

}  // namespace ckptd
