// ckptctl's exit statuses: programs rely on them, so they never change.
#ifndef CKPTD_CLIENT_CTL_EXIT_CODE_H_
#define CKPTD_CLIENT_CTL_EXIT_CODE_H_

#include "absl/status/status.h"

namespace ckptd {

enum class ExitCode {
  kOk = 0,
  kDamaged = 1,      // verify found something wrong
  kUsage = 2,        // the command line was wrong, or an answer was "no"
  kNotFound = 3,     // no such job, step or folder
  kUnreachable = 4,  // no daemon answers, or its coordinator is away
  kDenied = 5,       // another user's job, or only for root
  kFailed = 6,       // anything else
};

inline ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kDamaged;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return ExitCode::kDenied;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_EXIT_CODE_H_
