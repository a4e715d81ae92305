#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckptd/v1/handle.pb.h"
#include "proto/rpc/handle_socket.h"
#include "proto/rpc/wire.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"

namespace ckptd {
namespace {

TEST_CASE("a killed trainer's session ends although a forked child holds the socket open") {
  NodeFixture fixture;
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t trainer = fork();
  if (trainer == 0) {
    absl::StatusOr<UniqueFd> socket = ConnectHandleSocket(fixture.HandlePath(), absl::Seconds(60));
    v1::HandleRequest hello;
    hello.mutable_hello()->set_protocol_version(kProtocolVersion);
    v1::HandleReply reply;
    const bool ok = socket.ok() && SendHandlePacket(socket->get(), hello).ok() &&
                    ReceiveHandlePacket(socket->get(), reply).ok();
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    const pid_t told = ok ? child : -1;
    (void)!write(pipe_ends[1], &told, sizeof(told));
    pause();
    _exit(0);
  }
  pid_t child = -1;
  REQUIRE(read(pipe_ends[0], &child, sizeof(child)) == sizeof(child));
  REQUIRE(child > 0);
  CHECK(fixture.node->Status().sessions_size() == 1);
  kill(trainer, SIGKILL);
  fixture.probe.AwaitClosed(1);
  CHECK(fixture.node->Status().sessions_size() == 0);
  kill(child, SIGKILL);
  waitpid(trainer, nullptr, 0);
}

// As many descriptors as are open now, until it is destroyed.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const UniqueFd lowest_free(dup(0));
    rlimit limit = before_;
    limit.rlim_cur = lowest_free.get();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_CASE("a node without free descriptors says so to whoever connects, and serves again later") {
  NodeFixture fixture;
  const std::string path = fixture.HandlePath();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd trainers[] = {UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)),
                               UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))};
  {
    const NoMoreDescriptors limited;
    for (const UniqueFd& trainer : trainers) {
      v1::HandleReply reply;
      REQUIRE(connect(trainer.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
      REQUIRE(ReceiveHandlePacket(trainer.get(), reply).ok());
      CHECK(reply.error().code() == static_cast<int>(absl::StatusCode::kResourceExhausted));
    }
  }
  TestTrainer later(fixture, 0);
  CHECK(later.Join("gpt", 1).Get().ok());
}

TEST_CASE("invariant 7: another job's slab is refused") {
  NodeFixture fixture;
  TestTrainer owner(fixture, 0), stranger(fixture, 0);
  REQUIRE(owner.Join("mine", 1).Get().ok());
  REQUIRE(stranger.Join("other", 1).Get().ok());
  owner.SetState({{"w", "secret"}}, {});
  Pending<v1::BeginSaveResponse> begun = owner.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  const uint64_t slab = begun.Get()->tensors().segments(0).slab_id();
  CHECK(absl::IsPermissionDenied(stranger.GetSlab(slab)));
  CHECK(owner.GetSlab(slab).ok());
}

TEST_CASE("invariant 2: a trainer that goes before its snapshot is finished fails the attempt") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  first.SetState({{"a", "abc"}}, {});
  second.SetState({{"b", "abc"}}, {});
  Pending<v1::BeginSaveResponse> begun[] = {first.BeginSave(1, 1), second.BeginSave(1, 1)};
  REQUIRE(begun[0].Get().ok());
  REQUIRE(begun[1].Get().ok());
  second.Disconnect();
  absl::StatusOr<v1::SaveStatus> status = first.Wait(1, v1::SAVE_PHASE_DURABLE);
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK(status->error_message().find("rank 1") != std::string::npos);
  CHECK_FALSE(first.Finish(1).ok());
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("an unknown token is told what to do") {
  NodeFixture fixture;
  const absl::Status status = fixture.node->Authenticate("no such token").status();
  CHECK(absl::IsUnauthenticated(status));
  CHECK(std::string(status.message()).find("connect again") != std::string::npos);
}

}  // namespace
}  // namespace ckptd
