// Packets of the handle socket (proto/ckptd/v1/handle.proto): one SOCK_SEQPACKET
// packet is one serialized message, with at most one file descriptor beside it.
//
// Used by both ends. Nothing here keeps state; one thread at a time per socket.
#ifndef CKPTD_PROTO_RPC_HANDLE_SOCKET_H_
#define CKPTD_PROTO_RPC_HANDLE_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

// Connects to the socket at `path`. Sends and receives on it give up after
// `timeout`. NOT_FOUND when nothing is there, UNAVAILABLE when nobody listens,
// PERMISSION_DENIED, INVALID_ARGUMENT for a path that is too long.
absl::StatusOr<UniqueFd> ConnectHandleSocket(const std::string& path, absl::Duration timeout);

// Sends `message`, and a duplicate of `descriptor` unless it is negative. The
// caller keeps its own. UNAVAILABLE when the peer is gone, DEADLINE_EXCEEDED when
// it did not take the packet in time (or, on a non-blocking socket, at once),
// RESOURCE_EXHAUSTED for a message above kMaxHandlePacketBytes.
[[nodiscard]] absl::Status SendHandlePacket(int socket,
                                            const google::protobuf::MessageLite& message,
                                            int descriptor = -1);

// Receives one packet into `message` and returns the descriptor that came with
// it (not valid() when none came). UNAVAILABLE when the peer has closed,
// DEADLINE_EXCEEDED when nothing came in time (or, on a non-blocking socket, is
// there now), INVALID_ARGUMENT for a packet that is too long, doesn't parse, or
// carries more than one descriptor; all that came with it are closed.
absl::StatusOr<UniqueFd> ReceiveHandlePacket(int socket, google::protobuf::MessageLite& message);

}  // namespace ckptd

#endif  // CKPTD_PROTO_RPC_HANDLE_SOCKET_H_
