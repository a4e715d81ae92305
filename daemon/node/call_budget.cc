#include "daemon/node/call_budget.h"

#include "absl/strings/str_cat.h"

namespace ckptd {

absl::StatusOr<CallBudget::Share> CallBudget::Take(const SessionPtr& session,
                                                   uint64_t request_bytes) {
  absl::MutexLock lock(&use_->mutex);
  size_t& calls = use_->calls[session->id];
  uint64_t& bytes = use_->bytes[session->user_id];
  if (calls >= calls_per_session_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("process ", session->process_id, " has ", calls,
                     " calls under way, the limit: wait for their answers"));
  }
  if (bytes + request_bytes > bytes_per_user_) {
    if (calls == 0) use_->calls.erase(session->id);
    return absl::ResourceExhaustedError(absl::StrCat(
        "the calls of user ", session->user_id, " that are under way hold ", bytes, " of ",
        bytes_per_user_, " bytes, and this one has ", request_bytes, ": try again later"));
  }
  ++calls;
  bytes += request_bytes;
  return Share(nullptr, [use = use_, session, request_bytes](const void*) {
    absl::MutexLock give_back(&use->mutex);
    auto of_session = use->calls.find(session->id);
    if (--of_session->second == 0) use->calls.erase(of_session);
    auto of_user = use->bytes.find(session->user_id);
    // Requests without a byte need no entry.
    if (of_user == use->bytes.end()) return;
    if ((of_user->second -= request_bytes) == 0) use->bytes.erase(of_user);
  });
}

}  // namespace ckptd
