// The daemon's end of the handle socket: accepts trainers, learns who they are,
// gives tokens and slab descriptors, and notices their end.
//
// A session ends when its process dies (pidfd: a forked child may hold the socket
// open) or its connection closes, whichever is first.
#ifndef CKPTD_DAEMON_NODE_HANDLE_SERVER_H_
#define CKPTD_DAEMON_NODE_HANDLE_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/handle.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/probe.h"
#include "daemon/node/session.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

struct HandleServerOptions {
  std::string path;
  std::string instance_id;
  std::string node_name;
  std::string version;
  size_t connection_limit = 0;
  size_t connection_limit_per_user = 0;
};

// What the server needs to know; called on the server's thread.
class HandleServerDelegate {
 public:
  virtual ~HandleServerDelegate() = default;
  virtual absl::StatusOr<SessionPtr> OpenSession(uint32_t process_id, uint32_t user_id,
                                                 uint32_t group_id) = 0;
  virtual void EndSession(const SessionPtr& session) = 0;
  virtual absl::StatusOr<Arena::SharedSlab> ShareSlab(const SessionPtr& session,
                                                      uint64_t slab_id) = 0;
};

class HandleServer {
 public:
  // Listens (socket mode 0666: the peer's credentials decide, not the mode) and
  // serves on a thread. FAILED_PRECONDITION when another daemon listens there; a
  // dead daemon's socket is replaced.
  static absl::StatusOr<std::unique_ptr<HandleServer>> Start(HandleServerOptions options,
                                                             HandleServerDelegate& delegate,
                                                             NodeProbe& probe);
  // As Stop().
  ~HandleServer();
  // Ends all sessions, removes the socket, joins the thread. Idempotent.
  void Stop();

 private:
  struct Connection {
    UniqueFd socket;
    UniqueFd process;  // pidfd; not valid where the kernel gives none
    uint32_t process_id = 0;
    uint32_t user_id = 0;
    uint32_t group_id = 0;
    SessionPtr session;  // null before Hello
  };

  HandleServer(HandleServerOptions options, HandleServerDelegate& delegate, NodeProbe& probe)
      : options_(std::move(options)), delegate_(delegate), probe_(probe) {}

  absl::Status Listen();
  void Run();
  void Accept();
  // Takes one connection with the descriptor that was kept for this, and tells the peer.
  void RefuseForLackOfDescriptors();
  absl::StatusOr<Connection> Identify(UniqueFd socket);
  absl::Status Watch(uint64_t id, const Connection& connection);
  void Serve(uint64_t id);
  v1::HandleReply Answer(Connection& connection, const v1::HandleRequest& request,
                         UniqueFd& descriptor);
  absl::StatusOr<v1::HandleReply> AnswerHello(Connection& connection, const v1::Hello& hello);
  void End(uint64_t id);

  const HandleServerOptions options_;
  HandleServerDelegate& delegate_;
  NodeProbe& probe_;
  UniqueFd listener_;
  UniqueFd epoll_;
  UniqueFd stop_;   // eventfd
  UniqueFd spare_;  // given up for a moment when there is no other; may be missing
  // The rest belongs to the thread.
  std::map<uint64_t, Connection> connections_;
  std::map<uint32_t, size_t> per_user_;
  uint64_t next_connection_ = 1;
  std::thread thread_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_HANDLE_SERVER_H_
