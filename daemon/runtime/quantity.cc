#include "daemon/runtime/quantity.h"

#include <array>
#include <cmath>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/runtime/absl_view.h"

namespace ckptd {
namespace {

struct Unit {
  std::string_view name;
  uint64_t size;
};

constexpr std::array<Unit, 5> kBinaryUnits = {{
    {"TiB", uint64_t{1} << 40},
    {"GiB", uint64_t{1} << 30},
    {"MiB", uint64_t{1} << 20},
    {"KiB", uint64_t{1} << 10},
    {"B", 1},
}};
constexpr std::array<Unit, 4> kDecimalUnits = {{
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"KB", 1'000},
}};

uint64_t UnitSize(std::string_view name) {
  if (name.empty()) return 1;
  for (const Unit& unit : kBinaryUnits) {
    if (unit.name == name) return unit.size;
  }
  for (const Unit& unit : kDecimalUnits) {
    if (unit.name == name) return unit.size;
  }
  return 0;
}

absl::Status NotASize(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", Absl(text), "\" is no size; write it as 4096, 64MiB or 1.5GiB"));
}

std::string Counted(int64_t count, absl::string_view unit) {
  return absl::StrCat(count, " ", unit, count == 1 ? "" : "s");
}

}  // namespace

absl::StatusOr<uint64_t> ParseByteSize(std::string_view text) {
  size_t digits = 0;
  while (digits < text.size() && (absl::ascii_isdigit(text[digits]) || text[digits] == '.')) {
    ++digits;
  }
  const uint64_t unit = UnitSize(text.substr(digits));
  if (digits == 0 || unit == 0) return NotASize(text);

  uint64_t whole = 0;
  if (absl::SimpleAtoi(Absl(text.substr(0, digits)), &whole)) {
    if (whole > std::numeric_limits<uint64_t>::max() / unit) return NotASize(text);
    return whole * unit;
  }
  double fraction = 0;
  if (!absl::SimpleAtod(Absl(text.substr(0, digits)), &fraction)) return NotASize(text);
  const double bytes = fraction * static_cast<double>(unit);
  if (bytes >= 0x1p63) return NotASize(text);
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string ExactByteSize(uint64_t bytes) {
  for (const Unit& unit : kBinaryUnits) {
    if (bytes >= unit.size && bytes % unit.size == 0) {
      return absl::StrCat(bytes / unit.size, Absl(unit.name));
    }
  }
  return "0B";
}

std::string HumanByteSize(uint64_t bytes) {
  for (const Unit& unit : kBinaryUnits) {
    if (bytes < unit.size || unit.size == 1) continue;
    return absl::StrFormat("%.1f %s", static_cast<double>(bytes) / static_cast<double>(unit.size),
                           Absl(unit.name));
  }
  return absl::StrCat(bytes, " B");
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  int64_t days = 0;
  if (!text.empty() && text.back() == 'd' &&
      absl::SimpleAtoi(Absl(text.substr(0, text.size() - 1)), &days)) {
    return absl::Hours(24) * days;
  }
  // Abseil takes "0" and "inf" too; a wait without an end is not on offer.
  if (!absl::ParseDuration(Absl(text), &duration) || duration == absl::InfiniteDuration() ||
      duration == -absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Absl(text), "\" is no duration; write it as 500ms, 30s, 1h30m or 7d"));
  }
  return duration;
}

std::string DurationText(absl::Duration duration) { return absl::FormatDuration(duration); }

std::string HumanDuration(absl::Duration duration) {
  if (duration >= absl::Hours(48)) return Counted(duration / absl::Hours(24), "day");
  if (duration >= absl::Hours(1)) return Counted(duration / absl::Hours(1), "hour");
  if (duration >= absl::Minutes(1)) return Counted(duration / absl::Minutes(1), "minute");
  return Counted(absl::ToInt64Seconds(duration), "second");
}

}  // namespace ckptd
