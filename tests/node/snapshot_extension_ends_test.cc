// How saves of states larger than the arena fail, and what is left of them: nothing.
#include "tests/catch.h"
#include "tests/mentions.h"
#include "tests/node/node_fixture.h"
#include "tests/node/windowed_rank.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kWindowBytes = uint64_t{8} << 20;  // of LargeRank

void CheckNoFile(NodeFixture& fixture) {
  auto entries = fixture.posix->List(fixture.StorePath() + "/gpt/step-1");
  CHECK((absl::IsNotFound(entries.status()) || entries->empty()));
}

// Its first window is written and its second one leased: the file waits for that.
struct WaitingFile : LargeRank {
  explicit WaitingFile(NodeFixture& fixture) : LargeRank(fixture) {
    Fill();
    Take(StartExtend());
    fixture.probe.AwaitArenaUsed(kWindowBytes);
    Fill();  // that takes longer than the writer's last step to where it waits
  }
};

TEST_CASE("invariant 2: a trainer that dies between two windows leaves neither file nor memory") {
  NodeFixture fixture;
  WaitingFile rank(fixture);
  rank.trainer.Disconnect();
  fixture.probe.AwaitArenaEmpty();
  fixture.node->Stop();
  CHECK(fixture.coordinator.commits().back().error_code() != 0);
  CheckNoFile(fixture);
}

TEST_CASE("invariant 2: a daemon that stops between two windows leaves neither file nor memory") {
  NodeFixture fixture;
  WaitingFile rank(fixture);
  fixture.node->Stop();
  fixture.probe.AwaitArenaEmpty();
  CHECK_THAT(fixture.coordinator.commits().back().error_message(),
             Contains("the node daemon is shutting down"));
  CheckNoFile(fixture);
}

TEST_CASE("who waits for a window when the daemon stops is told") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  rank.trainer.SetPaused(true);
  rank.Take(rank.StartExtend());
  Pending<v1::ExtendSnapshotResponse> waiting = rank.StartExtend();
  CHECK_FALSE(waiting.ready());
  fixture.node->Stop();
  CHECK(absl::IsUnavailable(waiting.Get().status()));
  fixture.probe.AwaitArenaEmpty();
  CheckNoFile(fixture);
}

TEST_CASE("draining waits for a snapshot between two windows, which goes on to its end") {
  NodeFixture fixture;
  WaitingFile rank(fixture);
  const absl::Status late = fixture.node->Drain(absl::Now());
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(Mentions(late, "waited for the snapshot of rank 0"));
  rank.FillToTheEnd();
  REQUIRE(rank.trainer.Finish(1).ok());
  CHECK(fixture.node->Drain(absl::Now() + absl::Minutes(5)).ok());
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("a rank that waits for a window is told that another rank has died") {
  NodeFixture fixture;
  WindowedRank first(fixture, 0, 21'000'001), second(fixture, 1, 21'000'001);
  JoinTogether(first, second);
  SaveTogether(first, second, 1);
  fixture.files.CloseGate(FileOperation::kWriteAt);
  // The arena has room for four windows, of which the second rank holds one.
  first.Take(first.StartExtend());
  first.Take(first.StartExtend());
  Pending<v1::ExtendSnapshotResponse> waiting = first.StartExtend();
  CHECK_FALSE(waiting.ready());
  second.trainer.Disconnect();
  CHECK(absl::IsAborted(waiting.Get().status()));
  CHECK(Mentions(waiting.Get().status(),
                 "saving step 1 of job gpt (e1s1) on node n0: rank 1 (process "));
  CHECK(Mentions(waiting.Get().status(), "has ended before its snapshot was finished"));
  CHECK(absl::IsAborted(first.trainer.Finish(1)));
  fixture.files.OpenGate();
  fixture.probe.AwaitArenaEmpty();
  fixture.node->Stop();
  CheckNoFile(fixture);
}

TEST_CASE(
    "invariant 6: a window that doesn't come in time fails the save, saying what is missing") {
  NodeFixture fixture({.manual_time = true});
  LargeRank rank(fixture);
  const bool paused = GENERATE(true, false);
  if (paused) {
    rank.trainer.SetPaused(true);
  } else {
    fixture.files.CloseGate(FileOperation::kWriteAt);
  }
  rank.Take(rank.StartExtend());
  Pending<v1::ExtendSnapshotResponse> waiting = rank.StartExtend(/*timeout_seconds=*/30);
  fixture.time.Advance(absl::Seconds(29));
  CHECK_FALSE(waiting.ready());
  fixture.time.Advance(absl::Seconds(2));
  const absl::Status status = waiting.Get().status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(Mentions(status, "rank 0 has copied 16.0 MiB of its 39.1 MiB and needs room for more"));
  CHECK(Mentions(status, "for 8.0 MiB of the arena of 16.0 MiB"));
  CHECK(Mentions(status, "ckptctl resume") == paused);
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_FAILED);
  fixture.files.OpenGate();
  fixture.probe.AwaitArenaEmpty();  // also while it is paused
  fixture.node->Stop();
  CheckNoFile(fixture);
}

TEST_CASE("a disk that fills between two windows fails the save, saying how much was missing") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  fixture.files.Inject({.operation = FileOperation::kWriteAt,
                        .from_call = 2,
                        .calls = 1 << 20,
                        .status = absl::ResourceExhaustedError("no space")});
  for (bool failed = false; !failed && !rank.HasEnd();) {
    Pending<v1::ExtendSnapshotResponse> next = rank.StartExtend();
    failed = !next.Get().ok();
    if (!failed) rank.lease = next.Get()->tensors();
  }
  // Frees what it holds; fails, unless the save has not failed yet.
  rank.trainer.Finish(1).IgnoreError();
  auto status = rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE);
  REQUIRE(status.ok());
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK_THAT(status->error_message(), Contains("no space") && Contains("the file needs 39.1 MiB"));
  fixture.probe.AwaitArenaEmpty();
}

TEST_CASE("a file that can't be made fails the save before its image is taken, freeing memory") {
  NodeFixture fixture;
  fixture.files.Inject(
      {.operation = FileOperation::kCreate, .status = absl::PermissionDeniedError("read-only")});
  fixture.files.CloseGate(FileOperation::kCreate);
  LargeRank rank(fixture);
  fixture.files.OpenGate();
  rank.StartExtend().Get().IgnoreError();  // the next window may come before the failure
  auto status = rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE);
  REQUIRE(status.ok());
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK_THAT(status->error_message(), Contains("data-e1s1-n0-0.safetensors: read-only"));
  CHECK(absl::IsPermissionDenied(rank.trainer.Finish(1)));
  fixture.probe.AwaitArenaEmpty();
}

}  // namespace
}  // namespace ckptd
