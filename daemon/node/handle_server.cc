#include "daemon/node/handle_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/rpc/handle_socket.h"
#include "proto/rpc/wire.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace ckptd {
namespace {

// What an epoll event is about: (connection << 2) | kind.
enum EventKind : uint64_t { kStop = 0, kListener = 1, kProcess = 2, kSocket = 3 };
constexpr uint64_t EventKey(uint64_t connection, EventKind kind) { return connection << 2 | kind; }
constexpr EventKind KindOf(uint64_t key) { return static_cast<EventKind>(key & 3); }

constexpr int kPauseWithoutDescriptorsMilliseconds = 100;

absl::Status SystemError(absl::string_view doing) {
  return absl::InternalError(absl::StrCat(doing, ": ", strerror(errno)));
}

absl::Status AddToEpoll(int epoll, int descriptor, uint64_t key) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = key;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
    return SystemError("watching a connection");
  }
  return absl::OkStatus();
}

// Of the process that connected, even if its number was reused since, where the
// kernel (6.5) knows; else by number.
UniqueFd OpenPeerProcess(int socket, pid_t process_id) {
  int descriptor = -1;
  socklen_t size = sizeof(descriptor);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &descriptor, &size) == 0) {
    return UniqueFd(descriptor);
  }
  if (process_id <= 0) return UniqueFd();  // in a PID namespace that we can't see
  return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, process_id, 0)));
}

v1::HandleReply ErrorReply(const absl::Status& status) {
  v1::HandleReply reply;
  reply.mutable_error()->set_code(static_cast<int>(status.code()));
  reply.mutable_error()->set_message(std::string(status.message()));
  return reply;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HandleServer>> HandleServer::Start(HandleServerOptions options,
                                                                  HandleServerDelegate& delegate,
                                                                  NodeProbe& probe) {
  std::unique_ptr<HandleServer> server(new HandleServer(std::move(options), delegate, probe));
  if (absl::Status status = server->Listen(); !status.ok()) return status;
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  pthread_setname_np(server->thread_.native_handle(), "ckptd-handles");
  return server;
}

absl::Status HandleServer::Listen() {
  absl::StatusOr<UniqueFd> other = ConnectHandleSocket(options_.path, absl::Seconds(1));
  if (other.ok()) {
    return absl::FailedPreconditionError(
        absl::StrCat("another node daemon listens on ", options_.path,
                     ": stop it, or give this one another --socket-dir"));
  }
  if (absl::IsInvalidArgument(other.status())) return other.status();
  unlink(options_.path.c_str());
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  spare_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!listener_.valid() || !epoll_.valid() || !stop_.valid()) {
    return SystemError("creating the handle socket");
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, options_.path.data(), options_.path.size());
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(options_.path.c_str(), 0666) != 0 || listen(listener_.get(), SOMAXCONN) != 0) {
    return SystemError(absl::StrCat("listening on ", options_.path));
  }
  absl::Status status = AddToEpoll(epoll_.get(), stop_.get(), EventKey(0, kStop));
  status.Update(AddToEpoll(epoll_.get(), listener_.get(), EventKey(0, kListener)));
  return status;
}

HandleServer::~HandleServer() { Stop(); }

void HandleServer::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  while (write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
  while (!connections_.empty()) End(connections_.begin()->first);
  listener_.reset();
  unlink(options_.path.c_str());
}

void HandleServer::Run() {
  std::array<epoll_event, 64> events;
  while (true) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    if (count < 0) continue;  // EINTR
    // Deaths before news: whoever connects now may be the successor of the dead.
    const auto end = events.begin() + count;
    std::sort(events.begin(), end, [](const epoll_event& a, const epoll_event& b) {
      const auto order = [](const epoll_event& event) {
        return KindOf(event.data.u64) == kListener ? 9 : static_cast<int>(KindOf(event.data.u64));
      };
      return order(a) < order(b);
    });
    for (auto event = events.begin(); event != end; ++event) {
      const uint64_t connection = event->data.u64 >> 2;
      switch (KindOf(event->data.u64)) {
        case kStop:
          return;
        case kProcess:
          End(connection);
          break;
        case kSocket:
          Serve(connection);
          break;
        case kListener:
          Accept();
          break;
      }
    }
  }
}

void HandleServer::Accept() {
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE) RefuseForLackOfDescriptors();
    return;  // gone again
  }
  const int raw = socket.get();
  absl::StatusOr<Connection> connection = Identify(std::move(socket));
  if (!connection.ok()) {
    probe_.Warning(connection.status().message());
    return;
  }
  const size_t of_user = per_user_[connection->user_id];
  if (connections_.size() >= options_.connection_limit ||
      of_user >= options_.connection_limit_per_user) {
    // Best effort: the peer sees the end in any case.
    (void)SendHandlePacket(raw, ErrorReply(absl::ResourceExhaustedError(absl::StrCat(
                                    "user ", connection->user_id, " has ", of_user, " of ",
                                    options_.connection_limit_per_user,
                                    " connections and this node ", connections_.size(), " of ",
                                    options_.connection_limit, ": no more are accepted"))));
    return;
  }
  const uint64_t id = next_connection_++;
  if (absl::Status status = Watch(id, *connection); !status.ok()) {
    probe_.Warning(status.message());
    return;
  }
  ++per_user_[connection->user_id];
  connections_.emplace(id, *std::move(connection));
}

// The waiting connection must be taken: as long as it waits, the listener is ready.
void HandleServer::RefuseForLackOfDescriptors() {
  probe_.Warning("out of file descriptors: a trainer is refused; raise LimitNOFILE or ulimit -n");
  spare_.reset();
  UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.valid()) {
    // Best effort: the peer sees the end in any case.
    (void)SendHandlePacket(
        socket.get(),
        ErrorReply(absl::ResourceExhaustedError(absl::StrCat(
            "node daemon ", options_.node_name, " is out of file descriptors: raise its limit"))));
    socket.reset();
  }
  spare_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (spare_.valid()) return;
  // Another thread took it. Without a pause this would be asked again at once.
  pollfd stop = {.fd = stop_.get(), .events = POLLIN, .revents = 0};
  poll(&stop, 1, kPauseWithoutDescriptorsMilliseconds);
}

absl::StatusOr<HandleServer::Connection> HandleServer::Identify(UniqueFd socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError("reading a trainer's credentials");
  }
  Connection connection;
  connection.process = OpenPeerProcess(socket.get(), peer.pid);
  if (!connection.process.valid()) {
    if (errno == ESRCH) return absl::NotFoundError("a trainer died while it connected");
    // Its death is then seen only when the socket closes.
    probe_.FallbackInUse("pidfd");
  }
  connection.socket = std::move(socket);
  connection.process_id = static_cast<uint32_t>(peer.pid);
  connection.user_id = peer.uid;
  connection.group_id = peer.gid;
  return connection;
}

absl::Status HandleServer::Watch(uint64_t id, const Connection& connection) {
  absl::Status status = AddToEpoll(epoll_.get(), connection.socket.get(), EventKey(id, kSocket));
  if (status.ok() && connection.process.valid()) {
    status = AddToEpoll(epoll_.get(), connection.process.get(), EventKey(id, kProcess));
  }
  return status;
}

void HandleServer::Serve(uint64_t id) {
  auto it = connections_.find(id);
  if (it == connections_.end()) return;  // ended earlier in this round
  Connection& connection = it->second;
  v1::HandleRequest request;
  absl::StatusOr<UniqueFd> received = ReceiveHandlePacket(connection.socket.get(), request);
  if (absl::IsDeadlineExceeded(received.status())) return;  // nothing there after all
  if (!received.ok()) return End(id);
  UniqueFd descriptor;
  const v1::HandleReply reply = Answer(connection, request, descriptor);
  // A peer that does not take its answers has no use for a session.
  if (!SendHandlePacket(connection.socket.get(), reply, descriptor.get()).ok()) End(id);
}

v1::HandleReply HandleServer::Answer(Connection& connection, const v1::HandleRequest& request,
                                     UniqueFd& descriptor) {
  if (request.has_hello()) {
    absl::StatusOr<v1::HandleReply> reply = AnswerHello(connection, request.hello());
    return reply.ok() ? *std::move(reply) : ErrorReply(reply.status());
  }
  if (!request.has_get_slab()) {
    return ErrorReply(absl::UnimplementedError(
        "this node daemon does not know this request: is the client newer?"));
  }
  if (connection.session == nullptr) {
    return ErrorReply(absl::FailedPreconditionError("a connection begins with Hello"));
  }
  const uint64_t slab_id = request.get_slab().slab_id();
  absl::StatusOr<Arena::SharedSlab> slab = delegate_.ShareSlab(connection.session, slab_id);
  if (!slab.ok()) return ErrorReply(slab.status());
  descriptor = std::move(slab->descriptor);
  v1::HandleReply reply;
  reply.mutable_slab()->set_slab_id(slab_id);
  reply.mutable_slab()->set_size_bytes(slab->size_bytes);
  return reply;
}

absl::StatusOr<v1::HandleReply> HandleServer::AnswerHello(Connection& connection,
                                                          const v1::Hello& hello) {
  if (hello.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("client ", hello.client_version(), " speaks protocol ",
                     hello.protocol_version(), ", this node daemon ", options_.version, " speaks ",
                     kProtocolVersion, ": install matching versions"));
  }
  if (connection.session != nullptr) {
    return absl::FailedPreconditionError("this connection has a session already");
  }
  absl::StatusOr<SessionPtr> session =
      delegate_.OpenSession(connection.process_id, connection.user_id, connection.group_id);
  if (!session.ok()) return session.status();
  connection.session = *std::move(session);
  v1::HandleReply reply;
  v1::Welcome* welcome = reply.mutable_welcome();
  welcome->set_session_token(connection.session->token);
  welcome->set_instance_id(options_.instance_id);
  welcome->set_node(options_.node_name);
  welcome->set_server_version(options_.version);
  return reply;
}

void HandleServer::End(uint64_t id) {
  auto it = connections_.find(id);
  if (it == connections_.end()) return;
  Connection connection = std::move(it->second);  // closing it also takes it out of epoll
  connections_.erase(it);
  auto of_user = per_user_.find(connection.user_id);
  if (--of_user->second == 0) per_user_.erase(of_user);
  if (connection.session != nullptr) delegate_.EndSession(connection.session);
}

}  // namespace ckptd
