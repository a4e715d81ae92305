// Calls that wait: at Drain, at Stop, and when their like never end.
#include <thread>

#include "daemon/coordinator/job_state.h"
#include "tests/coordinator/two_nodes.h"

namespace ckptd {
namespace {

using Steps = std::vector<uint64_t>;

TEST_CASE("invariant 6: stopping answers every call that waits, and all that come later") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.Plan(50);
  auto commit = nodes.a.Commit(50);
  auto load = nodes.a.Load(std::nullopt);
  FakeNode other(nodes.cluster, "c", {{0, MakeLayout({}, {"lr"})}});
  auto join = other.Join(2, "run2");
  nodes.cluster.coordinator().Stop();
  CHECK(commit.status().code() == absl::StatusCode::kUnavailable);
  CHECK(load.status().code() == absl::StatusCode::kUnavailable);
  CHECK(join.status().code() == absl::StatusCode::kUnavailable);
  CHECK(nodes.b.Plan(50).status().code() == absl::StatusCode::kUnavailable);
  CHECK(nodes.b.Load(40).status().code() == absl::StatusCode::kUnavailable);
  CHECK(other.Join(2, "run2").status().code() == absl::StatusCode::kUnavailable);
  CHECK(nodes.cluster.Remove(40).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("stopping waits for the commit that has begun, which is answered as it ends") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  nodes.cluster.files->CloseGate(FileOperation::kCommit);
  auto first = nodes.a.Commit(40);
  auto second = nodes.b.Commit(40);
  REQUIRE(nodes.cluster.files->AwaitBlocked(1));
  std::thread stopping([&] { nodes.cluster.coordinator().Stop(); });
  nodes.cluster.files->OpenGate();
  stopping.join();
  CHECK(first.status().ok());
  CHECK(second.status().ok());
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps() == Steps{40});
}

TEST_CASE("a draining coordinator takes nothing new and finishes what is under way") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  nodes.cluster.coordinator().Drain();
  CHECK_FALSE(nodes.cluster.coordinator().AwaitSavesFinished(absl::ZeroDuration()));
  CHECK(nodes.a.Load(std::nullopt).status().code() == absl::StatusCode::kUnavailable);
  CHECK(nodes.a.Join(2, "run2").status().code() == absl::StatusCode::kUnavailable);
  auto first = nodes.a.Commit(40);
  CHECK(nodes.b.Commit(40).status().ok());
  CHECK(nodes.cluster.coordinator().AwaitSavesFinished(absl::Minutes(1)));
  nodes.NextSave();
  CHECK(nodes.a.Plan(50).status().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("a load that a node has finished is not begun again by the same call") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  auto first = nodes.a.Load(40);
  auto second = nodes.b.Load(40);
  REQUIRE(first.Wait().ok());
  CHECK(nodes.a.Load(40).Wait()->pieces_size() == first.Wait()->pieces_size());  // resent
  nodes.a.Finish();
  CHECK(nodes.a.Load(40).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("readers load without a world, and those that die block nobody for ever") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  FakeNode reader(nodes.cluster, "r", {{0, MakeLayout({WholeShard("w", {4, 3})}, {"lr"})}});
  reader.epoch = 0;
  const auto plan = reader.Load(std::nullopt).Wait();
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  CHECK(plan->pieces_size() == 3);
  reader.Finish();
  CHECK(nodes.cluster.Remove(41).status().code() == absl::StatusCode::kNotFound);
  for (size_t i = 0; i < kMaxLoadsPerJob; ++i) REQUIRE(reader.Load(40).status().ok());
  CHECK(reader.Load(40).status().code() == absl::StatusCode::kResourceExhausted);
  nodes.cluster.clock.Set(nodes.cluster.clock.Now() + absl::Hours(3));
  CHECK(reader.Load(40).status().ok());
  reader.user_id = 2000;
  CHECK(reader.Load(40).status().code() == absl::StatusCode::kPermissionDenied);
}

TEST_CASE("removing after a step can be tried first, and takes only what is above it") {
  TwoNodes nodes;
  nodes.Join();
  for (uint64_t step : {10, 20, 30}) nodes.Save(step);
  v1::AuthorizedRemoveCheckpoints request;
  request.set_user_id(1000);
  request.mutable_request()->set_job("gpt");
  request.mutable_request()->set_after_step(10);
  request.mutable_request()->set_dry_run(true);
  Answer<v1::RemoveCheckpointsResponse> tried;
  nodes.cluster.coordinator().RemoveCheckpoints(request, tried.done());
  REQUIRE(tried.status().ok());
  CHECK(tried.Wait()->removed_size() == 2);
  CHECK(nodes.cluster.Steps() == Steps{10, 20, 30});
  request.mutable_request()->set_dry_run(false);
  Answer<v1::RemoveCheckpointsResponse> removed;
  nodes.cluster.coordinator().RemoveCheckpoints(request, removed.done());
  REQUIRE(removed.status().ok());
  CHECK(removed.Wait()->removed_size() == 2);
  CHECK(nodes.cluster.Steps() == Steps{10});
  CHECK_FALSE(nodes.cluster.Exists(nodes.cluster.store() + "/gpt/step-20"));
}

TEST_CASE("a report of a node outside the world fails nobody's save") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  FakeNode stranger(nodes.cluster, "c", {{0, MakeLayout({}, {"lr"})}});
  v1::CommitSaveRequest failed = stranger.MakeReport(40);
  failed.set_error_code(static_cast<int>(absl::StatusCode::kInternal));
  CHECK(stranger.Send(failed).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(nodes.TrySave(40).ok());
}

}  // namespace
}  // namespace ckptd
