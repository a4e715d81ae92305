// How an asynchronous operation answers. Apart from unary_call.h so that who
// implements such operations needs no gRPC header.
#ifndef CKPTD_DAEMON_RUNTIME_DONE_H_
#define CKPTD_DAEMON_RUNTIME_DONE_H_

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"

namespace ckptd {

// Called exactly once, now or later, from any thread.
template <typename Response>
using Done = absl::AnyInvocable<void(absl::StatusOr<Response>)>;

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_DONE_H_
