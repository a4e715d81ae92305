#include "daemon/node/persist_blocks.h"
#include "tests/catch.h"
#include "tests/mentions.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

TEST_CASE("a saved state is durable, and its arena free again") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", Pattern(3'000'001, 'a')}}, {{"step", "40"}});
  absl::StatusOr<v1::SaveStatus> status = trainer.Save(40, 1);
  REQUIRE(status.ok());
  INFO(status->error_message());
  CHECK(status->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
  REQUIRE(fixture.coordinator.commits().size() == 1);
  CHECK(fixture.coordinator.commits()[0].files_size() == 2);
  CHECK(fixture.coordinator.commits()[0].pieces(0).piece().chunk_crc32c_size() ==
        static_cast<int>(ChunkCount(3'000'001)));
}

TEST_CASE("the second save of a layout asks the coordinator for no plan") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", Pattern(5000, 'a')}}, {});
  REQUIRE(trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  REQUIRE(trainer.Save(2, 2)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK(fixture.coordinator.plans() == 1);
}

TEST_CASE("invariant 5: a value that all ranks of a node share is written once") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  CHECK_FALSE(joined.ready());
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  first.SetState({{"w", Pattern(5000, 'a')}}, {{"step", "7"}, {"rng", "one"}});
  second.SetState({{"w", Pattern(5000, 'a')}}, {{"step", "7"}, {"rng", "two"}});
  Pending<v1::BeginSaveResponse> begun[] = {first.BeginSave(7, 1), second.BeginSave(7, 1)};
  REQUIRE(begun[0].Get().ok());
  REQUIRE(begun[1].Get().ok());
  CHECK(begun[0].Get()->small_placements_size() == 2);
  CHECK(begun[1].Get()->small_placements_size() == 1);
  CHECK(begun[1].Get()->placements_size() == 0);
  first.Copy(*begun[0].Get());
  second.Copy(*begun[1].Get());
  REQUIRE(first.Finish(1).ok());
  REQUIRE(second.Finish(1).ok());
  REQUIRE(first.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  int of_both = 0;
  const v1::CommitSaveRequest commit = fixture.coordinator.commits().at(0);
  for (const v1::WrittenSmall& small : commit.small()) {
    of_both += small.name() == "step" && small.ranks_size() == 2 ? 1 : 0;
  }
  CHECK(of_both == 1);
  CHECK(commit.small_size() == 3);
}

TEST_CASE("a rank that changes its layout alone fails that attempt by name") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  for (TestTrainer* trainer : {&first, &second}) trainer->SetState({{"w", "abc"}}, {});
  Pending<v1::BeginSaveResponse> begun[] = {first.BeginSave(1, 1), second.BeginSave(1, 1)};
  first.Copy(*begun[0].Get());
  REQUIRE(first.Finish(1).ok());
  REQUIRE(second.Finish(1).ok());
  REQUIRE(first.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  second.SetState({{"w", "abc"}, {"extra", "x"}}, {});
  Pending<v1::BeginSaveResponse> unchanged = first.BeginSave(2, 2);
  REQUIRE(unchanged.Get().ok());
  Pending<v1::BeginSaveResponse> changed = second.BeginSave(2, 2);
  CHECK(absl::IsFailedPrecondition(changed.Get().status()));
  CHECK(Mentions(changed.Get().status(), "rank 1"));
  CHECK_FALSE(first.Finish(2).ok());
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("a step that is in flight or committed is not saved again") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", "abc"}}, {});
  Pending<v1::BeginSaveResponse> begun = trainer.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  CHECK(absl::IsFailedPrecondition(trainer.BeginSave(1, 2).Get().status()));
  trainer.Copy(*begun.Get());
  REQUIRE(trainer.Finish(1).ok());
  REQUIRE(trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK(absl::IsAlreadyExists(trainer.BeginSave(1, 3).Get().status()));
}

TEST_CASE("invariant 2: a failed fsync fails the attempt and leaves none of its files") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", Pattern(5000, 'a')}}, {});
  fixture.files.Inject({.operation = FileOperation::kSync, .status = absl::DataLossError("EIO")});
  absl::StatusOr<v1::SaveStatus> status = trainer.Save(1, 1);
  REQUIRE(status.ok());
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK(status->error_message().find("EIO") != std::string::npos);
  CHECK(fixture.posix->List(fixture.StorePath() + "/gpt/step-1")->empty());
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
  CHECK(trainer.Save(1, 2)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("invariant 4: a state that leaves no room for windows fails at once, losing nothing") {
  NodeFixture fixture({.arena_bytes = uint64_t{8} << 20});
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", Pattern(9 << 20, 'a')}}, {{"value", Pattern(8'000'000)}});
  const absl::Status status = trainer.BeginSave(1, 1).Get().status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK(Mentions(status, "--arena-bytes"));
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("invariant 3: bytes that are not those of save() are not written as if they were") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({}, {{"rng", "before"}});
  Pending<v1::BeginSaveResponse> begun = trainer.BeginSave(1, 1);
  REQUIRE(begun.Get().ok());
  trainer.SetState({}, {{"rng", "after!"}});
  trainer.Copy(*begun.Get());
  REQUIRE(trainer.Finish(1).ok());
  absl::StatusOr<v1::SaveStatus> status = trainer.Wait(1, v1::SAVE_PHASE_DURABLE);
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK(status->error_message().find("rng of rank 0") != std::string::npos);
}

}  // namespace
}  // namespace ckptd
