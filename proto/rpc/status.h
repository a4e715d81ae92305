// The one place where gRPC's status and Abseil's are converted into each other,
// and where it is said which errors may pass by themselves.
#ifndef CKPTD_PROTO_RPC_STATUS_H_
#define CKPTD_PROTO_RPC_STATUS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"
#include "proto/rpc/wire.h"

namespace ckptd {

// The text, or its beginning and how much was left out: at most `limit` bytes and a short
// note. Never cuts through a UTF-8 character.
inline std::string CutText(absl::string_view text, size_t limit) {
  if (text.size() <= limit) return std::string(text);
  size_t kept = limit;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) >> 6) == 2;
  };
  while (kept > 0 && continues(kept)) --kept;
  return absl::StrCat(text.substr(0, kept), "... and ", text.size() - kept, " more bytes");
}

// The codes have the same numbers in both.
inline grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      CutText(status.message(), kMaxErrorMessageBytes));
}

inline absl::Status FromGrpcStatus(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// As carried in a message's error_code and error_message.
inline absl::Status StatusFromWire(int code, const std::string& message) {
  if (code == 0) return absl::OkStatus();
  const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
  return absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                      message);
}

// May the same call succeed later without anyone changing anything?
inline bool IsRetryable(const absl::Status& status) { return absl::IsUnavailable(status); }

// "saving step 40 of job gpt: <message>", same code.
inline absl::Status Annotate(const absl::Status& status, absl::string_view doing) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(doing, ": ", status.message()));
}

}  // namespace ckptd

#endif  // CKPTD_PROTO_RPC_STATUS_H_
