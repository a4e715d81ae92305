// The sessions of this node, by token.
#ifndef CKPTD_DAEMON_NODE_SESSIONS_H_
#define CKPTD_DAEMON_NODE_SESSIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "daemon/node/session.h"

namespace ckptd {

// `bytes` random bytes from the kernel.
std::string RandomBytes(int bytes);

// Thread-safe.
class Sessions {
 public:
  Sessions(size_t limit, size_t limit_per_user) : limit_(limit), limit_per_user_(limit_per_user) {}

  // RESOURCE_EXHAUSTED, naming the limit, when there are too many.
  absl::StatusOr<SessionPtr> Open(uint32_t process_id, uint32_t user_id, uint32_t group_id)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void End(const Session& session) ABSL_LOCKS_EXCLUDED(mutex_);

  // UNAUTHENTICATED when no living session has this token.
  absl::StatusOr<SessionPtr> Find(absl::string_view token) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<SessionPtr> All() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const size_t limit_;
  const size_t limit_per_user_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, SessionPtr> by_token_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, size_t> per_user_ ABSL_GUARDED_BY(mutex_);
  SessionId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SESSIONS_H_
