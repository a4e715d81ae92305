// Constants that both ends of a conversation must agree on.
#ifndef CKPTD_PROTO_RPC_WIRE_H_
#define CKPTD_PROTO_RPC_WIRE_H_

#include <cstdint>

namespace ckptd {

// Raised when an old peer could misunderstand a new one.
inline constexpr uint32_t kProtocolVersion = 1;

// Metadata of every trainer -> node call: the session's token, binary.
inline constexpr char kSessionMetadataKey[] = "ckptd-session-bin";
// Metadata of every node -> coordinator call where a cluster secret is configured.
inline constexpr char kClusterSecretMetadataKey[] = "ckptd-cluster-secret-bin";

// Names within a node's socket directory.
inline constexpr char kGrpcSocketName[] = "node.grpc";
inline constexpr char kHandleSocketName[] = "node.handles";
inline constexpr int kMaxUnixSocketPathBytes = 107;

// One handle-socket packet, one gRPC message.
inline constexpr int kMaxHandlePacketBytes = 4096;
inline constexpr int kMaxTrainerMessageBytes = 64 << 20;
inline constexpr int kMaxNodeMessageBytes = 512 << 20;

// An error's message, whole: lists in it are cut below this ("... and N more"). It
// travels as metadata, where a byte that is no printable ASCII takes three; whoever
// receives answers (channels, not servers) must allow that much, or gRPC's 8 KB would
// turn a long error into one that says nothing.
inline constexpr int kMaxErrorMessageBytes = 1 << 20;
inline constexpr int kMaxAnswerMetadataBytes = 4 << 20;

// Keepalive of connections between hosts. The server's minimum must be below the
// client's interval, or the server closes with too_many_pings.
inline constexpr int kKeepaliveIntervalMilliseconds = 30'000;
inline constexpr int kKeepaliveTimeoutMilliseconds = 10'000;
inline constexpr int kKeepaliveMinimumIntervalMilliseconds = 15'000;

// The transport's deadline is the call's own timeout_seconds plus this, so that
// the server's answer, which names who was waited for, comes first.
inline constexpr double kDeadlineSlackSeconds = 5.0;

}  // namespace ckptd

#endif  // CKPTD_PROTO_RPC_WIRE_H_
