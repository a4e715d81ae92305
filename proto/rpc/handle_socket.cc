#include "proto/rpc/handle_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

// Room for more than we accept, so that a peer that sends more is noticed and
// its descriptors closed instead of lost.
constexpr size_t kControlBytes = CMSG_SPACE(sizeof(int) * 8);

absl::Status SocketError(int error, absl::string_view doing) {
  const std::string message = absl::StrCat(doing, " the handle socket: ", strerror(error));
  switch (error) {
    case EAGAIN:
      return absl::DeadlineExceededError(message);
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
    case ENOTCONN:
      return absl::UnavailableError(message);
    case ENOENT:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status SetTimeout(int socket, absl::Duration timeout) {
  const timeval value = absl::ToTimeval(timeout);
  for (int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (setsockopt(socket, SOL_SOCKET, option, &value, sizeof(value)) != 0) {
      return SocketError(errno, "setting the timeout of");
    }
  }
  return absl::OkStatus();
}

std::vector<UniqueFd> TakeDescriptors(msghdr& header) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
       control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(descriptor);
    }
  }
  return descriptors;
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectHandleSocket(const std::string& path, absl::Duration timeout) {
  if (path.size() > kMaxUnixSocketPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the socket path ", path, " has ", path.size(), " bytes; at most ",
                     kMaxUnixSocketPathBytes, " are possible: use a shorter socket directory"));
  }
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SocketError(errno, "creating");
  if (absl::Status status = SetTimeout(socket.get(), timeout); !status.ok()) return status;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return SocketError(errno, absl::StrCat("connecting to ", path, ","));
  }
  return socket;
}

absl::Status SendHandlePacket(int socket, const google::protobuf::MessageLite& message,
                              int descriptor) {
  std::string bytes = message.SerializeAsString();
  if (bytes.size() > kMaxHandlePacketBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a handle-socket packet of ", bytes.size(),
                                                     " bytes; the limit is ",
                                                     kMaxHandlePacketBytes));
  }
  iovec data = {bytes.data(), bytes.size()};
  alignas(cmsghdr) char control_bytes[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control_bytes;
    header.msg_controllen = sizeof(control_bytes);
    cmsghdr* control = CMSG_FIRSTHDR(&header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &descriptor, sizeof(int));
  }
  while (sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return SocketError(errno, "sending on");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> ReceiveHandlePacket(int socket, google::protobuf::MessageLite& message) {
  char bytes[kMaxHandlePacketBytes];
  iovec data = {bytes, sizeof(bytes)};
  alignas(cmsghdr) char control_bytes[kControlBytes];
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control_bytes;
  header.msg_controllen = sizeof(control_bytes);
  ssize_t received;
  while ((received = recvmsg(socket, &header, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno != EINTR) return SocketError(errno, "receiving on");
  }
  std::vector<UniqueFd> descriptors = TakeDescriptors(header);
  // Every message of ours has at least one byte: an empty packet is the end.
  if (received == 0) return absl::UnavailableError("the handle socket's peer has closed it");
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || descriptors.size() > 1) {
    return absl::InvalidArgumentError(
        "a handle-socket packet is too long or carries several descriptors");
  }
  if (!message.ParseFromArray(bytes, static_cast<int>(received))) {
    return absl::InvalidArgumentError("a handle-socket packet is no valid message");
  }
  return descriptors.empty() ? UniqueFd() : std::move(descriptors.front());
}

}  // namespace ckptd
