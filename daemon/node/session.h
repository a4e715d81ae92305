// A session: one trainer (or tool) process that is connected to the handle socket.
#ifndef CKPTD_DAEMON_NODE_SESSION_H_
#define CKPTD_DAEMON_NODE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>

namespace ckptd {

// Never used twice within one node daemon's life.
using SessionId = uint64_t;

inline constexpr int kSessionTokenBytes = 16;

// Immutable: who the kernel says that the peer is.
struct Session {
  SessionId id = 0;
  std::string token;
  uint32_t process_id = 0;
  uint32_t user_id = 0;
  uint32_t group_id = 0;
};

using SessionPtr = std::shared_ptr<const Session>;

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SESSION_H_
