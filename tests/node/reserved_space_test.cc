// Space on storage is set aside before a snapshot is taken, and what a full disk leaves behind.
#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

struct OneRank {
  explicit OneRank(NodeFixture& fixture) : trainer(fixture, 0) {
    REQUIRE(trainer.Join("gpt", 1).Get().ok());
    trainer.SetState({{"w", Pattern(2 << 20, 'a')}}, {{"rng", "state"}});
  }
  TestTrainer trainer;
};

TEST_CASE("a save's files are being created before its snapshot, which doesn't wait for that") {
  NodeFixture fixture;
  OneRank rank(fixture);
  fixture.files.CloseGate(FileOperation::kCreate);
  Pending<v1::BeginSaveResponse> begun = rank.trainer.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  CHECK(fixture.files.AwaitBlocked(2));
  rank.trainer.Copy(*begun.Get());
  REQUIRE(rank.trainer.Finish(1).ok());
  fixture.files.OpenGate();
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("a full disk fails a save before its snapshot, says what is missing and loses nothing") {
  NodeFixture fixture;
  OneRank rank(fixture);
  REQUIRE(rank.trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  const int written = fixture.files.CountCalls(FileOperation::kWriteAt);
  fixture.files.LimitSpace(1 << 20);
  fixture.files.CloseGate(FileOperation::kCreate);
  Pending<v1::BeginSaveResponse> begun = rank.trainer.BeginSave(2, 2);
  REQUIRE(begun.Get().ok());
  fixture.files.OpenGate();

  absl::StatusOr<v1::SaveStatus> status = rank.trainer.Wait(2, v1::SAVE_PHASE_DURABLE);
  REQUIRE(status.ok());
  CHECK(status->error_code() == static_cast<int>(absl::StatusCode::kResourceExhausted));
  CHECK_THAT(status->error_message(),
             Contains("saving step 2 of job gpt") && Contains("data-e1s2-n0-0.safetensors") &&
                 Contains("the file needs 2.0 MiB") && Contains("is missing") &&
                 Contains("free space or remove checkpoints"));
  CHECK(fixture.files.CountCalls(FileOperation::kWriteAt) == written);
  CHECK(absl::IsResourceExhausted(rank.trainer.Finish(2)));
  fixture.probe.AwaitArenaEmpty();
  CHECK(fixture.posix->List(fixture.StorePath() + "/gpt/step-1")->size() == 2);

  fixture.files.LiftSpaceLimit();
  CHECK(rank.trainer.Save(2, 3)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("invariant 2: whichever file has no room, the space that the save took is given back") {
  NodeFixture fixture;
  OneRank rank(fixture);
  // Of both files only one fits.
  constexpr uint64_t kFreeBytes = (2 << 20) + (8 << 10);
  fixture.files.LimitSpace(kFreeBytes);
  fixture.files.CloseGate(FileOperation::kCreate);
  REQUIRE(rank.trainer.BeginSave(1, 1).Get().ok());
  fixture.files.OpenGate();
  REQUIRE(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_FAILED);
  CHECK(absl::IsResourceExhausted(rank.trainer.Finish(1)));
  fixture.node->Stop();
  CHECK(*fixture.files.FreeBytes(fixture.StorePath()) == kFreeBytes);
  CHECK(fixture.posix->List(fixture.StorePath() + "/gpt/step-1")->empty());
}

}  // namespace
}  // namespace ckptd
