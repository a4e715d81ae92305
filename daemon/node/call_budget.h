// How much of the daemon's memory unanswered calls may hold: gRPC keeps a call's request
// until it is answered, and a call may wait for days.
#ifndef CKPTD_DAEMON_NODE_CALL_BUDGET_H_
#define CKPTD_DAEMON_NODE_CALL_BUDGET_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/node/limits.h"
#include "daemon/node/session.h"

namespace ckptd {

// Thread-safe.
class CallBudget {
 public:
  explicit CallBudget(size_t calls_per_session = kMostCallsPerSession,
                      uint64_t bytes_per_user = kMostRequestBytesPerUser)
      : calls_per_session_(calls_per_session), bytes_per_user_(bytes_per_user) {}

  // One call's share, given back with the object; it may outlive the budget.
  using Share = std::shared_ptr<const void>;
  // RESOURCE_EXHAUSTED, naming the limit, when the session has too many calls under way
  // or its user's requests are too large together.
  absl::StatusOr<Share> Take(const SessionPtr& session, uint64_t request_bytes);

 private:
  struct Use {
    absl::Mutex mutex;
    absl::flat_hash_map<SessionId, size_t> calls ABSL_GUARDED_BY(mutex);
    absl::flat_hash_map<uint32_t, uint64_t> bytes ABSL_GUARDED_BY(mutex);  // by user
  };

  const size_t calls_per_session_;
  const uint64_t bytes_per_user_;
  const std::shared_ptr<Use> use_ = std::make_shared<Use>();
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_CALL_BUDGET_H_
