// What a broken or hostile trainer may try, and what it gets.
#include <unistd.h>

#include "ckptd/v1/handle.pb.h"
#include "daemon/node/limits.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/handle_socket.h"
#include "tests/catch.h"
#include "tests/mentions.h"
#include "tests/node/node_fixture.h"

namespace ckptd {
namespace {

struct OneRank {
  explicit OneRank(NodeFixture& fixture) : trainer(fixture, 0) {
    REQUIRE(trainer.Join("gpt", 1).Get().ok());
    trainer.SetState({{"w", "abc"}}, {});
  }
  TestTrainer trainer;
};

TEST_CASE("save numbers that don't grow are refused and leave nothing behind") {
  NodeFixture fixture;
  OneRank rank(fixture);
  REQUIRE(rank.trainer.Save(1, 5)->phase() == v1::SAVE_PHASE_DURABLE);
  for (uint64_t number : {5, 4, 1}) {
    const absl::Status status = rank.trainer.BeginSave(2, number).Get().status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK(Mentions(status, "numbers must grow"));
  }
  CHECK(absl::IsInvalidArgument(rank.trainer.BeginSave(2, 0).Get().status()));
  CHECK(fixture.node->Status().saves_size() == 0);
}

TEST_CASE("a second BeginSave of one rank is refused and the first one goes on") {
  NodeFixture fixture;
  OneRank rank(fixture);
  Pending<v1::BeginSaveResponse> begun = rank.trainer.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  CHECK(absl::IsInvalidArgument(rank.trainer.BeginSave(1, 1).Get().status()));
  rank.trainer.Copy(*begun.Get());
  REQUIRE(rank.trainer.Finish(1).ok());
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("a second FinishSnapshot is refused, and one before the lease, too") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  first.SetState({{"a", "abc"}}, {});
  second.SetState({{"b", "abc"}}, {});
  Pending<v1::BeginSaveResponse> begun = first.BeginSave(1, 1);
  CHECK(Mentions(first.Finish(1), "has no lease yet"));
  REQUIRE(second.BeginSave(1, 1).Get().ok());
  REQUIRE(begun.Get().ok());
  first.Copy(*begun.Get());
  REQUIRE(first.Finish(1).ok());
  CHECK(Mentions(first.Finish(1), "has finished its snapshot already"));
}

TEST_CASE("a rank that is left over from an older world is told both epochs") {
  NodeFixture fixture;
  OneRank old(fixture);
  fixture.coordinator.SetEpoch(2);
  TestTrainer newer(fixture, 0);
  REQUIRE(newer.Join("gpt", 1).Get().ok());
  const absl::Status status = old.trainer.BeginSave(1, 1).Get().status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Mentions(status, "epoch 1 of job gpt is over: epoch 2 has begun"));
  CHECK(Mentions(old.trainer.BeginLoad(old.trainer.LoadRequest(1, {{"w", 3}})).Get().status(),
                 "epoch 2 has begun"));
}

TEST_CASE("one process is one rank of a job's world") {
  NodeFixture fixture;
  OneRank rank(fixture);
  v1::JoinRequest request;
  request.set_job("gpt");
  request.set_store("main");
  request.set_world_size(2);
  request.set_rank(1);
  request.set_process_nonce(std::string(16, 'x'));
  request.set_timeout_seconds(60);
  Pending<v1::JoinResponse> again;
  fixture.node->Join(rank.trainer.session(), request, again.done());
  CHECK(Mentions(again.Get().status(), "is rank 0 of job gpt already"));
}

TEST_CASE("invariant 4: one process joins a bounded number of worlds") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  for (size_t i = 0; i < kMostWorldsPerSession; ++i) {
    REQUIRE(trainer.Join("job" + std::to_string(i), 1).Get().ok());
  }
  CHECK(absl::IsResourceExhausted(trainer.Join("one-more", 1).Get().status()));
}

TEST_CASE("invariant 4: one user opens a bounded number of sessions") {
  NodeFixture fixture({.session_limit_per_user = 2});
  TestTrainer first(fixture, 0), second(fixture, 0);
  absl::StatusOr<UniqueFd> third = ConnectHandleSocket(fixture.HandlePath(), absl::Seconds(60));
  REQUIRE(third.ok());
  v1::HandleReply reply;
  REQUIRE(ReceiveHandlePacket(third->get(), reply).ok());
  CHECK(reply.error().code() == static_cast<int>(absl::StatusCode::kResourceExhausted));
  second.Disconnect();
  fixture.probe.AwaitClosed(1);
  TestTrainer instead(fixture, 0);
}

TEST_CASE("a user who has all the sessions of one keeps no other user out", "[root]") {
  NodeFixture fixture({.session_limit_per_user = 1});
  TestTrainer first(fixture, 0);
  TestTrainer other(fixture, 0, 4711);
  CHECK(other.Join("gpt", 1).Get().ok());
}

TEST_CASE("invariant 7: headers that grow beyond bounds fail their own save and nothing else") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  // A control character becomes six in JSON: 60 MB of header from 10 MB of layout.
  std::vector<TestTensor> values[2];
  for (int rank = 0; rank < 2; ++rank) {
    for (int i = 0; i < 2600; ++i) {
      values[rank].push_back({std::string(4000, '\x01') + std::to_string(i), rank ? "x" : "y"});
    }
  }
  first.SetState({}, values[0]);
  second.SetState({}, values[1]);
  Pending<v1::BeginSaveResponse> begun[] = {first.BeginSave(1, 1), second.BeginSave(1, 1)};
  for (auto& one : begun) {
    CHECK(absl::IsResourceExhausted(one.Get().status()));
    CHECK(Mentions(one.Get().status(), "save with more ranks"));
  }
  first.SetState({{"a", "abc"}}, {});
  CHECK(first.BeginSave(2, 2).ready() == false);
}

TEST_CASE("invariant 7: sizes that can't be are refused before they are added up") {
  NodeFixture fixture;
  OneRank rank(fixture);
  v1::Layout layout;
  layout.add_values("a");
  layout.add_values("b");
  v1::BeginSaveRequest request;
  request.set_job("gpt");
  request.mutable_attempt()->set_epoch(1);
  request.mutable_attempt()->set_save_number(1);
  request.set_layout(layout.SerializeAsString());
  request.set_fingerprint(Sha256Of(request.layout()));
  request.set_timeout_seconds(60);
  for (int i = 0; i < 2; ++i) {
    v1::SmallContent* content = request.add_small();
    content->set_size_bytes(uint64_t{1} << 48);
    content->set_sha256(std::string(32, 'h'));
  }
  Pending<v1::BeginSaveResponse> begun;
  fixture.node->BeginSave(rank.trainer.session(), request, begun.done());
  CHECK(absl::IsInvalidArgument(begun.Get().status()));
}

TEST_CASE("invariant 7: another user's process can't save, look into or pause anything", "[root]") {
  NodeFixture fixture;
  OneRank owner(fixture);
  Pending<v1::BeginSaveResponse> begun = owner.trainer.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  TestTrainer stranger(fixture, 0, 4711);
  CHECK(stranger.session()->user_id == 4711);
  CHECK(absl::IsPermissionDenied(stranger.Join("gpt", 1).Get().status()));
  stranger.SetState({{"w", "abc"}}, {});
  CHECK(absl::IsFailedPrecondition(stranger.BeginSave(2, 2).Get().status()));
  CHECK(absl::IsPermissionDenied(stranger.Finish(1, "sabotage")));
  CHECK(absl::IsPermissionDenied(stranger.Wait(1, v1::SAVE_PHASE_DURABLE).status()));
  CHECK(absl::IsPermissionDenied(stranger.GetSlab(begun.Get()->tensors().segments(0).slab_id())));
  Pending<v1::SetPersistPausedResponse> paused;
  fixture.node->SetPersistPaused(stranger.session(), {}, paused.done());
  CHECK(absl::IsPermissionDenied(paused.Get().status()));
  Pending<v1::GetNodeStatusResponse> status;
  fixture.node->GetNodeStatus(stranger.session(), {}, status.done());
  CHECK(status.Get()->saves_size() == 0);
  CHECK(status.Get()->sessions_size() == 1);
}

TEST_CASE("a stall that a trainer reports is no longer than its save was") {
  NodeFixture fixture({.manual_time = true});
  OneRank rank(fixture);
  REQUIRE(rank.trainer.BeginSave(1, 1).Get().ok());
  fixture.time.Advance(absl::Seconds(2));
  v1::FinishSnapshotRequest request;
  request.set_job("gpt");
  request.mutable_attempt()->set_epoch(1);
  request.mutable_attempt()->set_save_number(1);
  request.set_blocked_seconds(1e300);
  Pending<v1::FinishSnapshotResponse> finished;
  fixture.node->FinishSnapshot(rank.trainer.session(), request, finished.done());
  REQUIRE(finished.Get().ok());
  CHECK(fixture.probe.longest_stall() == 2.0);
}

TEST_CASE("bytes that change after the snapshot was finished concern their own job only") {
  NodeFixture fixture;
  OneRank rank(fixture);
  fixture.files.CloseGate(FileOperation::kWriteAt);
  Pending<v1::BeginSaveResponse> begun = rank.trainer.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  rank.trainer.Copy(*begun.Get());
  REQUIRE(rank.trainer.Finish(1).ok());
  REQUIRE(fixture.files.AwaitBlocked(1));  // behind the checksums, before the write
  rank.trainer.SetState({{"w", "xyz"}}, {});
  rank.trainer.Copy(*begun.Get());
  fixture.files.OpenGate();
  REQUIRE(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK(absl::IsDataLoss(rank.trainer.Load("w", 3, 1).status()));
}

}  // namespace
}  // namespace ckptd
