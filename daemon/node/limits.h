// What the node daemon allows a trainer to ask for. Together with the arena these bound its
// memory; docs/architecture.md adds them up.
#ifndef CKPTD_DAEMON_NODE_LIMITS_H_
#define CKPTD_DAEMON_NODE_LIMITS_H_

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace ckptd {

inline constexpr double kLongestTimeoutSeconds = 7 * 24 * 3600.0;
inline constexpr size_t kLongestTokenBytes = 256;
inline constexpr size_t kLongestErrorBytes = 4096;
// Of one attempt, at one time.
inline constexpr size_t kMostWaiters = 4096;
// Of one job: failed and durable attempts that can still be asked about.
inline constexpr size_t kRememberedAttempts = 64;
// Of one world on one node: layouts per rank, and plans.
inline constexpr size_t kCachedLayoutsPerRank = 2;
// Of one job on one node, at one time.
inline constexpr size_t kMostAttemptsInFlight = 16;
// Of one save on one node: a checksum of 4 bytes per chunk is kept until the commit.
inline constexpr uint64_t kMostImageBytesPerSave = uint64_t{4} << 40;
inline constexpr size_t kMostLoadsPerSession = 16;
// Jobs' worlds that one process is in, or about to join.
inline constexpr size_t kMostWorldsPerSession = 32;
// Of one layout: tensors and values. Of all layouts that are kept: serialized bytes.
inline constexpr size_t kMostLayoutEntries = size_t{1} << 20;
inline constexpr uint64_t kMostLayoutBytes = uint64_t{1} << 30;
// Of one small content, and of all that one rank names in a save.
inline constexpr uint64_t kMostSmallBytes = uint64_t{1} << 48;
// gRPC calls that are not answered yet: how many of one session, and the bytes of
// their requests, which are kept as long, of one user.
inline constexpr size_t kMostCallsPerSession = 64;
inline constexpr uint64_t kMostRequestBytesPerUser = uint64_t{1} << 30;
// How long a rank of a failed save or load may keep its memory without saying that it
// has stopped touching it. Then the memory is taken out of use around it.
inline constexpr absl::Duration kReclaimAfter = absl::Seconds(60);
inline constexpr int kMostWindowsPerAnswer = 256;
// Of saved files whose copies stay in the arena.
inline constexpr size_t kMostKeptImages = 4096;

// A wait without a deadline is refused.
inline absl::StatusOr<absl::Duration> CheckTimeout(double seconds) {
  if (std::isfinite(seconds) && seconds > 0 && seconds <= kLongestTimeoutSeconds) {
    return absl::Seconds(seconds);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "timeout_seconds is ", seconds, "; it must be above 0 and at most ", kLongestTimeoutSeconds));
}

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_LIMITS_H_
