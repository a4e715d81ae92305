// Waits on the node end at their deadlines and say whom they waited for. Time is the
// test's own.
#include "tests/catch.h"
#include "tests/mentions.h"
#include "tests/node/node_fixture.h"

namespace ckptd {
namespace {

TEST_CASE("invariant 6: joining ends at its deadline and says which ranks have come") {
  NodeFixture fixture({.manual_time = true});
  TestTrainer trainer(fixture, 1);
  Pending<v1::JoinResponse> joined = trainer.Join("gpt", 2);
  fixture.time.Advance(absl::Seconds(61));
  CHECK(absl::IsDeadlineExceeded(joined.Get().status()));
  CHECK(Mentions(joined.Get().status(), "of 2 local ranks only these have joined: 1"));
}

struct TwoRanks {
  explicit TwoRanks(NodeFixture& fixture) : first(fixture, 0), second(fixture, 1) {
    Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
    REQUIRE(second.Join("gpt", 2).Get().ok());
    REQUIRE(joined.Get().ok());
    first.SetState({{"a", "abc"}}, {});
    second.SetState({{"b", "abc"}}, {});
  }
  TestTrainer first, second;
};

TEST_CASE("invariant 6: a save that one rank never begins ends at its deadline, naming it") {
  NodeFixture fixture({.manual_time = true});
  TwoRanks ranks(fixture);
  Pending<v1::BeginSaveResponse> begun = ranks.first.BeginSave(1, 1);
  fixture.time.Advance(absl::Seconds(61));
  CHECK(absl::IsDeadlineExceeded(begun.Get().status()));
  CHECK(Mentions(begun.Get().status(), "saving step 1 of job gpt (e1s1) on node n0"));
  CHECK(Mentions(begun.Get().status(), "waited for save() of rank 1"));
}

TEST_CASE("invariant 6: the shortest of the ranks' timeouts is that of their save or load") {
  NodeFixture fixture({.manual_time = true});
  TwoRanks ranks(fixture);
  ranks.second.timeout_seconds = 10;
  SECTION("a save") {
    Pending<v1::BeginSaveResponse> begun[] = {ranks.first.BeginSave(1, 1),
                                              ranks.second.BeginSave(1, 1)};
    REQUIRE(begun[0].Get().ok());
    fixture.time.Advance(absl::Seconds(11));
    CHECK(fixture.node->Status().saves().empty());
    CHECK(absl::IsDeadlineExceeded(ranks.first.Finish(1)));
  }
  SECTION("a load") {
    v1::BeginLoadRequest request = ranks.first.LoadRequest(1, {});
    request.set_timeout_seconds(60);
    fixture.coordinator.HoldPlans();
    Pending<v1::BeginLoadResponse> first = ranks.first.BeginLoad(request);
    request.set_timeout_seconds(10);
    Pending<v1::BeginLoadResponse> second = ranks.second.BeginLoad(request);
    fixture.time.Advance(absl::Seconds(11));
    REQUIRE(first.ready());
    CHECK(absl::IsDeadlineExceeded(first.Get().status()));
    CHECK(absl::IsDeadlineExceeded(second.Get().status()));
  }
}

TEST_CASE(
    "invariant 6: a snapshot that never ends fails the save at its deadline, naming the rank") {
  NodeFixture fixture({.manual_time = true});
  TwoRanks ranks(fixture);
  Pending<v1::BeginSaveResponse> begun[] = {ranks.first.BeginSave(1, 1),
                                            ranks.second.BeginSave(1, 1)};
  REQUIRE(begun[0].Get().ok());
  REQUIRE(begun[1].Get().ok());
  ranks.first.Copy(*begun[0].Get());
  REQUIRE(ranks.first.Finish(1).ok());
  fixture.time.Advance(absl::Seconds(61));
  absl::StatusOr<v1::SaveStatus> status = ranks.first.Wait(1, v1::SAVE_PHASE_DURABLE);
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK(status->error_message().find("waited for the snapshot of rank 1") != std::string::npos);
}

TEST_CASE(
    "invariant 7: a trainer that sleeps in its snapshot keeps no other job out of the arena") {
  NodeFixture fixture({.arena_bytes = uint64_t{8} << 20, .manual_time = true});
  TestTrainer sleeper(fixture, 0), other(fixture, 0);
  REQUIRE(sleeper.Join("sleepy", 1).Get().ok());
  REQUIRE(other.Join("other", 1).Get().ok());
  sleeper.SetState({{"w", std::string(6 << 20, 's')}}, {});
  other.SetState({{"w", std::string(6 << 20, 'o')}}, {});
  Pending<v1::BeginSaveResponse> asleep = sleeper.BeginSave(1, 1);
  REQUIRE(asleep.Get().ok());
  sleeper.Copy(*asleep.Get());

  fixture.time.Advance(absl::Seconds(61));               // the save's deadline
  CHECK(fixture.node->Status().arena_used_bytes() > 0);  // it may still be copying
  fixture.time.Advance(absl::Seconds(61));
  CHECK(fixture.node->Status().arena_used_bytes() == 0);

  CHECK(other.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  // Awake again: it writes to memory that is nobody's, and learns that its save failed.
  sleeper.Copy(*asleep.Get());
  CHECK(absl::IsDeadlineExceeded(sleeper.Finish(1)));
  CHECK(other.Load("w", 6 << 20, 1).value() == std::string(6 << 20, 'o'));
}

TEST_CASE("invariant 3: what a sleeping trainer writes late is in no later save of its own job") {
  NodeFixture fixture({.arena_bytes = uint64_t{8} << 20, .manual_time = true});
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", std::string(5000, 'a')}}, {});
  Pending<v1::BeginSaveResponse> asleep = trainer.BeginSave(1, 1);
  REQUIRE(asleep.Get().ok());
  fixture.time.Advance(absl::Seconds(61));
  fixture.time.Advance(absl::Seconds(61));
  Pending<v1::BeginSaveResponse> next = trainer.BeginSave(2, 2);
  REQUIRE(next.Get().ok());
  CHECK(next.Get()->tensors().segments(0).slab_id() !=
        asleep.Get()->tensors().segments(0).slab_id());
}

TEST_CASE("invariant 6: who waits for arena memory learns at the deadline who holds it") {
  NodeFixture fixture({.arena_bytes = uint64_t{8} << 20, .manual_time = true});
  TestTrainer holder(fixture, 0), waiting(fixture, 0);
  REQUIRE(holder.Join("holder", 1).Get().ok());
  REQUIRE(waiting.Join("waiting", 1).Get().ok());
  holder.SetState({{"w", std::string(6 << 20, 'h')}}, {});
  waiting.SetState({{"w", std::string(6 << 20, 'w')}}, {});
  REQUIRE(holder.BeginSave(1, 1).Get().ok());
  fixture.time.Advance(absl::Seconds(1));
  Pending<v1::BeginSaveResponse> late = waiting.BeginSave(1, 1);
  fixture.time.Advance(absl::Seconds(60));
  CHECK(absl::IsDeadlineExceeded(late.Get().status()));
  CHECK(Mentions(late.Get().status(), "it is held by: 6.0 MiB for saving step 1 of job holder"));
}

TEST_CASE("waiting for a save answers its present state when the wait's own time is over") {
  NodeFixture fixture({.manual_time = true});
  TwoRanks ranks(fixture);
  Pending<v1::BeginSaveResponse> begun = ranks.first.BeginSave(1, 1);
  v1::WaitSaveRequest request;
  request.set_job("gpt");
  request.mutable_attempt()->set_epoch(1);
  request.mutable_attempt()->set_save_number(1);
  request.set_until(v1::SAVE_PHASE_DURABLE);
  request.set_timeout_seconds(5);
  Pending<v1::SaveStatus> waiting;
  fixture.node->WaitSave(ranks.first.session(), request, waiting.done());
  CHECK_FALSE(waiting.ready());
  fixture.time.Advance(absl::Seconds(6));
  REQUIRE(waiting.Get().ok());
  CHECK(waiting.Get()->phase() == v1::SAVE_PHASE_PLAN);
}

TEST_CASE("invariant 7: windows that are never given back are taken after the load's deadline") {
  NodeFixture fixture({.manual_time = true});
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  trainer.SetState({{"w", std::string(9 << 20, 'w')}}, {});
  REQUIRE(trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  Pending<v1::BeginLoadResponse> begun =
      trainer.BeginLoad(trainer.LoadRequest(1, {{"w", 9 << 20}}));
  REQUIRE(begun.Get().ok());
  const uint64_t load = begun.Get()->load_id();
  REQUIRE(trainer.Next(load).Get().ok());
  fixture.time.Advance(absl::Seconds(61));
  CHECK(absl::IsDeadlineExceeded(trainer.Next(load).Get().status()));
  CHECK(fixture.node->Status().arena_used_bytes() > 0);
  fixture.time.Advance(absl::Seconds(61));
  fixture.probe.AwaitArenaEmpty();  // a read may have been under way
  CHECK(absl::IsNotFound(trainer.EndLoad(load)));
}

}  // namespace
}  // namespace ckptd
