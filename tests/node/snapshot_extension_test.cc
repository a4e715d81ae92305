// States larger than the arena, on their way through it; how such saves fail is in
// snapshot_extension_ends_test.cc.
#include "daemon/node/sha256.h"
#include "tests/catch.h"
#include "tests/mentions.h"
#include "tests/node/node_fixture.h"
#include "tests/node/windowed_rank.h"

namespace ckptd {
namespace {

TEST_CASE("invariant 3: a state larger than the arena goes through it, byte for byte") {
  NodeFixture fixture({.keep_images = true});
  LargeRank rank(fixture);
  CHECK_FALSE(rank.HasEnd());
  rank.FillToTheEnd();
  REQUIRE(rank.trainer.Finish(1).ok());
  REQUIRE(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK((*rank.trainer.Load("w0", rank.state.size(), 1) == rank.state));
  CHECK(fixture.probe.mismatches() == 0);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("invariant 3: two ranks of a node go through the arena side by side") {
  NodeFixture fixture;
  WindowedRank first(fixture, 0, 21'000'001), second(fixture, 1, 13'000'007);
  JoinTogether(first, second);
  SaveTogether(first, second, 1);
  CHECK_FALSE(first.HasEnd());
  CHECK_FALSE(second.HasEnd());
  for (first.Fill(), second.Fill(); !second.HasEnd(); first.Fill(), second.Fill()) {
    Pending<v1::ExtendSnapshotResponse> next[] = {first.StartExtend(), second.StartExtend()};
    first.Take(next[0]);
    second.Take(next[1]);
  }
  first.FillToTheEnd();
  FinishDurably(first, second);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
  CheckSaved(first, second);
  CHECK(fixture.probe.mismatches() == 0);
}

// The save that waits for its rank came first, and asks for memory last. When it had the earlier
// place, it waited for what the other one held, and the other one waited behind it.
TEST_CASE("invariant 6: a save without a plan holds up no other job's way through the arena") {
  NodeFixture fixture;
  WindowedRank early(fixture, 0, 21'000'001), late(fixture, 1, 21'000'001);
  early.job = late.job = "other";
  JoinTogether(early, late);
  early.StartSave(1);
  LargeRank between(fixture);
  late.StartSave(1);
  for (between.Fill(); !between.HasEnd(); between.Fill()) {
    between.Take(between.StartExtend(/*timeout_seconds=*/20));
  }
  REQUIRE(between.trainer.Finish(1).ok());
  early.AwaitLease();
  late.AwaitLease();
  for (early.Fill(), late.Fill(); !early.HasEnd(); early.Fill(), late.Fill()) {
    Pending<v1::ExtendSnapshotResponse> next[] = {early.StartExtend(), late.StartExtend()};
    early.Take(next[0]);
    late.Take(next[1]);
  }
  FinishDurably(early, late);
  CheckSaved(early, late);
}

// Windows were planned as if a rank that is not there yet had no small contents: it could
// then find no room for them until the save's deadline.
TEST_CASE("a rank that begins late finds room beside windows that were planned without it") {
  NodeFixture fixture;
  const std::string value(7 << 20, 'v');
  WindowedRank first(fixture, 0, 3 << 20, value + "0"), second(fixture, 1, 3 << 20, value + "1");
  JoinTogether(first, second);
  first.trainer.timeout_seconds = second.trainer.timeout_seconds = 120;
  for (uint64_t number : {1, 2}) {
    first.StartSave(number);
    if (number == 2) first.AwaitLease();  // by the plan of the first save
    second.StartSave(number);
    second.AwaitLease();
    if (number == 1) first.AwaitLease();
    first.FillToTheEnd();
    second.FillToTheEnd();
    FinishDurably(first, second);
  }
  CHECK(fixture.coordinator.plans() == 1);
  CheckSaved(first, second);
}

TEST_CASE("a save is not refused for what a rank that begins late might have") {
  NodeFixture fixture;
  WindowedRank first(fixture, 0, 1 << 20, std::string(9 << 20, 'v')), second(fixture, 1, 1 << 20);
  JoinTogether(first, second);
  SaveTogether(first, second, 1);
  first.FillToTheEnd();
  second.FillToTheEnd();
  FinishDurably(first, second);
  first.StartSave(2);
  first.AwaitLease();
  second.StartSave(2);
  second.AwaitLease();
  first.FillToTheEnd();
  second.FillToTheEnd();
  FinishDurably(first, second);
  CHECK(fixture.coordinator.plans() == 1);
}

TEST_CASE("a rank can't skip a part of its image, nor finish before its end") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  const auto extend = [&](uint64_t copied_bytes) {
    return rank.Extend(copied_bytes, rank.trainer.session()).Get().status();
  };
  for (uint64_t copied_bytes : {uint64_t{0}, rank.LeaseEnd() + 4096}) {
    CHECK(absl::IsInvalidArgument(extend(copied_bytes)));
    CHECK(Mentions(extend(copied_bytes),
                   absl::StrCat("rank 0 has copied up to byte ", copied_bytes,
                                " of its image, and its lease ends at ", rank.LeaseEnd())));
  }
  CHECK(absl::IsFailedPrecondition(rank.trainer.Finish(1)));
  rank.FillToTheEnd();
  CHECK(absl::IsFailedPrecondition(extend(rank.LeaseEnd())));
  CHECK(Mentions(extend(rank.LeaseEnd()), "rank 0 has its image to the end already"));
  CHECK(rank.trainer.Finish(1).ok());
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE(
    "invariant 7: who has no part in a save, or asks twice, is refused and the save goes on") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  TestTrainer other(fixture, 0);
  REQUIRE(other.Join("other", 1).Get().ok());
  const absl::Status foreign = rank.Extend(rank.LeaseEnd(), other.session()).Get().status();
  CHECK(absl::IsPermissionDenied(foreign));
  CHECK(Mentions(foreign, "no part in that save"));

  fixture.files.CloseGate(FileOperation::kWriteAt);
  rank.Fill();
  rank.Take(rank.StartExtend());
  rank.Fill();
  Pending<v1::ExtendSnapshotResponse> waiting = rank.StartExtend();  // both windows are unwritten
  const absl::Status again = rank.StartExtend().Get().status();
  CHECK(absl::IsFailedPrecondition(again));
  CHECK(Mentions(again, "rank 0 waits for the next part of its image already"));
  CHECK_FALSE(waiting.ready());
  CHECK(absl::IsFailedPrecondition(rank.trainer.Finish(1)));
  fixture.files.OpenGate();
  rank.Take(waiting);
  rank.FillToTheEnd();
  CHECK(rank.trainer.Finish(1).ok());
  REQUIRE(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK((*rank.trainer.Load("w0", rank.state.size(), 1) == rank.state));
}

TEST_CASE("a rank whose whole image was leased has no next window, and its save goes on") {
  NodeFixture fixture;
  WindowedRank rank(fixture, 0, 5000);
  REQUIRE(rank.trainer.Join("gpt", 1).Get().ok());
  rank.StartSave(1);
  rank.AwaitLease();
  const absl::Status status = rank.StartExtend().Get().status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Mentions(status, "rank 0 has its image to the end already"));
  rank.Fill();
  REQUIRE(rank.trainer.Finish(1).ok());
  CHECK(Mentions(rank.StartExtend().Get().status(), "no part of its image to go on from"));
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("invariant 4: a node is given no more than 4 TiB in one save") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  v1::Layout layout;
  v1::Shard* shard = layout.add_shards();
  shard->set_name("w");
  shard->set_data_type(v1::DATA_TYPE_U8);
  shard->add_shape(uint64_t{5} << 40);
  shard->add_offsets(0);
  shard->add_lengths(uint64_t{5} << 40);
  v1::BeginSaveRequest request;
  request.set_job("gpt");
  request.mutable_attempt()->set_epoch(1);
  request.mutable_attempt()->set_save_number(1);
  request.set_step(1);
  request.set_layout(layout.SerializeAsString());
  request.set_fingerprint(Sha256Of(request.layout()));
  request.set_timeout_seconds(600);
  Pending<v1::BeginSaveResponse> begun;
  fixture.node->BeginSave(trainer.session(), request, begun.done());
  CHECK(absl::IsResourceExhausted(begun.Get().status()));
  CHECK(Mentions(begun.Get().status(), "spread the state over more nodes"));
  CHECK(fixture.node->Status().saves().empty());
}

}  // namespace
}  // namespace ckptd
