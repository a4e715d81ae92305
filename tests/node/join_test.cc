// Ranks that join one by one, as those do that find their node daemon restarted: none is
// answered before all of this node's ranks are there.
#include "tests/catch.h"
#include "tests/node/node_fixture.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

struct Rank : TestTrainer {
  Rank(NodeFixture& fixture, uint32_t rank) : TestTrainer(fixture, rank) {
    local_world_size_is_known = false;
  }
};

std::string Message(Pending<v1::JoinResponse>& joined) {
  return std::string(joined.Get().status().message());
}

TEST_CASE("a rank that joins by itself is answered when all of its node have joined") {
  NodeFixture fixture;
  Rank first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  CHECK_FALSE(joined.ready());
  CHECK(second.Join("gpt", 2).Get()->epoch() == 1);
  CHECK(joined.Get()->epoch() == 1);
  // Once all are there, one that joins again waits for nobody.
  CHECK(first.Join("gpt", 2).Get().ok());
}

TEST_CASE("invariant 6: a rank whose neighbours never join learns at its deadline whose") {
  NodeFixture fixture({.manual_time = true});
  Rank first(fixture, 0), second(fixture, 2);
  second.timeout_seconds = 90;
  Pending<v1::JoinResponse> joined = first.Join("gpt", 3);
  Pending<v1::JoinResponse> waits_longer = second.Join("gpt", 3);
  fixture.time.Advance(absl::Seconds(61));
  CHECK(absl::IsDeadlineExceeded(joined.Get().status()));
  CHECK_THAT(Message(joined),
             Contains("epoch 1 of job gpt on node n0") && Contains("waited for rank 1 of"));
  CHECK_FALSE(waits_longer.ready());
  // The one whose own wait is over is there all the same.
  Rank last(fixture, 1);
  CHECK(last.Join("gpt", 3).Get().ok());
  CHECK(waits_longer.Get().ok());
}

TEST_CASE("invariant 6: whoever waits for a rank that dies is told at once, naming it") {
  NodeFixture fixture;
  Rank first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 3);
  Pending<v1::JoinResponse> dies = second.Join("gpt", 3);
  second.Disconnect();
  CHECK(absl::IsCancelled(dies.Get().status()));
  CHECK(absl::IsFailedPrecondition(joined.Get().status()));
  CHECK_THAT(Message(joined), Contains("rank 1") && Contains("job gpt has ended"));
}

TEST_CASE("a newer run refuses those who wait to join the older one, naming both epochs") {
  NodeFixture fixture;
  Rank left_over(fixture, 0), first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = left_over.Join("gpt", 2);
  fixture.coordinator.SetEpoch(2);
  Pending<v1::JoinResponse> newer = first.Join("gpt", 2);
  CHECK(absl::IsFailedPrecondition(joined.Get().status()));
  CHECK_THAT(Message(joined), Contains("epoch 1 of job gpt is over: epoch 2 has begun"));
  // And who comes with an older epoch's answer after that.
  fixture.coordinator.SetEpoch(1);
  Pending<v1::JoinResponse> late = left_over.Join("gpt", 2);
  CHECK_THAT(Message(late), Contains("epoch 1 of job gpt is over: epoch 2 has begun"));
  fixture.coordinator.SetEpoch(2);
  CHECK(second.Join("gpt", 2).Get()->epoch() == 2);
  CHECK(newer.Get()->epoch() == 2);
}

TEST_CASE("whoever joins brings the epoch that the node's trainers hold: no other may get it") {
  NodeFixture fixture;
  fixture.coordinator.SetEpoch(7);
  Rank idle(fixture, 0), next(fixture, 0);
  REQUIRE(idle.Join("gpt", 1).Get().ok());
  CHECK(fixture.coordinator.newest_epoch() == 0);
  fixture.coordinator.SetEpoch(8);
  REQUIRE(next.Join("gpt", 1).Get().ok());
  CHECK(fixture.coordinator.newest_epoch() == 7);
}

TEST_CASE("invariant 6: a node that stops answers those who wait for others to join") {
  NodeFixture fixture;
  Rank first(fixture, 0);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  fixture.node->Stop();
  CHECK(absl::IsUnavailable(joined.Get().status()));
}

}  // namespace
}  // namespace ckptd
