// Amounts as people write and read them: "8GiB", "30s", "1.5 GiB".
#ifndef CKPTD_DAEMON_RUNTIME_QUANTITY_H_
#define CKPTD_DAEMON_RUNTIME_QUANTITY_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ckptd {

// "4096", "64KiB", "1.5GiB"; B, KiB, MiB, GiB, TiB, and KB, MB, GB, TB as powers
// of 1000. INVALID_ARGUMENT says what is accepted.
absl::StatusOr<uint64_t> ParseByteSize(std::string_view text);
// Exact, so that parsing it again gives the same: "8GiB", "1000B".
std::string ExactByteSize(uint64_t bytes);
// Rounded, for reading: "1.5 GiB", "512 B".
std::string HumanByteSize(uint64_t bytes);

// "30s", "1h30m", "500ms", "7d". A bare number is refused: its unit is unknown.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);
// "30s", "1h30m".
std::string DurationText(absl::Duration duration);
// The largest unit that is not zero: "3 days", "1 hour", "12 seconds".
std::string HumanDuration(absl::Duration duration);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_QUANTITY_H_
