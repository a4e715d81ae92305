// Pausing, draining, and what a commit that is under way decides.
#include "tests/catch.h"
#include "tests/node/node_fixture.h"

namespace ckptd {
namespace {

struct Staged {
  explicit Staged(NodeFixture& fixture) : trainer(fixture, 0) {
    REQUIRE(trainer.Join("gpt", 1).Get().ok());
    trainer.SetState({{"w", "abc"}}, {});
  }
  void Stage(uint64_t step, uint64_t number) {
    Pending<v1::BeginSaveResponse> begun = trainer.BeginSave(step, number);
    REQUIRE(begun.Get().ok());
    trainer.Copy(*begun.Get());
    REQUIRE(trainer.Finish(number).ok());
  }
  TestTrainer trainer;
};

TEST_CASE("while persisting is paused nothing is written, and afterwards all of it") {
  NodeFixture fixture;
  Staged staged(fixture);
  staged.trainer.SetPaused(true);
  staged.Stage(1, 1);
  CHECK(fixture.node->Status().persist_paused());
  CHECK(fixture.node->Status().saves(0).phase() == v1::SAVE_PHASE_PERSIST);
  CHECK(fixture.files.CountCalls(FileOperation::kCreate) == 0);
  staged.trainer.SetPaused(false);
  CHECK(staged.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("a paused save fails at its deadline and frees its memory") {
  NodeFixture fixture({.manual_time = true});
  Staged staged(fixture);
  staged.trainer.SetPaused(true);
  staged.Stage(1, 1);
  fixture.time.Advance(absl::Seconds(61));
  absl::StatusOr<v1::SaveStatus> status = staged.trainer.Wait(1, v1::SAVE_PHASE_DURABLE);
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK(status->error_message().find("files to be written to store main") != std::string::npos);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("draining finishes what is staged and takes nothing new") {
  NodeFixture fixture;
  Staged staged(fixture);
  fixture.files.CloseGate(FileOperation::kWriteAt);
  staged.Stage(1, 1);
  REQUIRE(fixture.files.AwaitBlocked(1));
  const absl::Status late = fixture.node->Drain(absl::Now());
  CHECK(absl::IsDeadlineExceeded(late));
  CHECK(std::string(late.message()).find("saving step 1 of job gpt") != std::string::npos);
  CHECK(absl::IsUnavailable(staged.trainer.BeginSave(2, 2).Get().status()));
  CHECK(absl::IsUnavailable(
      staged.trainer.BeginLoad(staged.trainer.LoadRequest(1, {{"w", 3}})).Get().status()));
  TestTrainer newcomer(fixture, 0);
  CHECK(absl::IsUnavailable(newcomer.Join("other", 1).Get().status()));
  fixture.files.OpenGate();
  CHECK(fixture.node->Drain(absl::Now() + absl::Minutes(1)).ok());
  CHECK(staged.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("invariant 1: a late refusal of the staging report removes no file of a commit") {
  NodeFixture fixture({.manual_time = true});
  fixture.coordinator.HoldCommits();
  fixture.coordinator.HoldStaged();
  Staged staged(fixture);
  staged.Stage(1, 1);
  REQUIRE(staged.trainer.Wait(1, v1::SAVE_PHASE_COMMIT)->phase() == v1::SAVE_PHASE_COMMIT);
  fixture.coordinator.FinishStaged(absl::AbortedError("settled"));
  fixture.coordinator.FinishCommits();
  CHECK(staged.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK(fixture.posix->List(fixture.StorePath() + "/gpt/step-1")->size() == 1);
}

TEST_CASE("a plan that the staging report is refused for is forgotten: the next save plans anew") {
  NodeFixture fixture;
  Staged staged(fixture);
  staged.Stage(1, 1);
  REQUIRE(staged.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  staged.trainer.SetPaused(true);  // the commit is not asked for yet
  fixture.coordinator.HoldStaged();
  staged.Stage(2, 2);
  fixture.coordinator.FinishStaged(absl::FailedPreconditionError("another changed its layout"));
  CHECK(staged.trainer.Wait(2, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_FAILED);
  staged.trainer.SetPaused(false);
  CHECK(fixture.coordinator.plans() == 1);
  staged.Stage(3, 3);
  CHECK(fixture.coordinator.plans() == 2);
}

}  // namespace
}  // namespace ckptd
