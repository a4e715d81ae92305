// The coordinator's calls, from worlds to loads, on a real catalog and store.
#include "daemon/coordinator/coordinator.h"

#include "proto/rpc/tags.h"
#include "tests/catch.h"
#include "tests/coordinator/two_nodes.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("a world gets its epoch when all ranks have joined, and keeps it over a restart") {
  TwoNodes nodes;
  auto first = nodes.a.Join(2);
  CHECK_FALSE(first.answered());
  auto second = nodes.b.Join(2);
  CHECK(first.Wait()->epoch() == 1);
  CHECK(second.Wait()->epoch() == 1);
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.a.Join(2).Wait()->epoch() == 1);
}

TEST_CASE("a join is told all ranks of its node, also those that join by themselves") {
  FakeCluster cluster;
  FakeNode first(cluster, "a", {{0, {}}}), third(cluster, "a", {{2, {}}});
  FakeNode other(cluster, "b", {{1, {}}});
  auto joined = first.Join(3);
  auto others = other.Join(3);
  REQUIRE(third.Join(3).status().ok());
  cluster.RestartCoordinator();
  for (const auto& answer : {joined.Wait(), third.Join(3).Wait()}) {
    REQUIRE(answer.ok());
    CHECK(std::vector<uint32_t>(answer->node_ranks().begin(), answer->node_ranks().end()) ==
          std::vector<uint32_t>{0, 2});
  }
}

TEST_CASE("invariant 6: a rank that never joins is named at the deadline") {
  TwoNodes nodes;
  auto waiting = nodes.a.Join(2);
  nodes.cluster.alarms.Advance(absl::Minutes(2));
  CHECK(waiting.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(waiting.status().message()), Contains("rank 1 of 2 never joined"));
}

TEST_CASE("a save is planned, committed, listed and loaded") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
  auto first = nodes.a.Load(std::nullopt);
  CHECK_FALSE(first.answered());
  auto second = nodes.b.Load(std::nullopt);
  const auto plan = first.Wait();
  INFO(plan.status().ToString());
  REQUIRE(plan.ok());
  CHECK(plan->step() == 40);
  REQUIRE(plan->pieces_size() == 2);  // its half of w, and lr
  CHECK(plan->pieces(0).name() == "w");
  CHECK(plan->pieces(0).piece().offsets(0) == 0);
  CHECK(second.Wait()->pieces(0).piece().offsets(0) == 2);
}

TEST_CASE("invariant 1: a checkpoint is not visible before its manifest, and is after") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  auto first = nodes.a.Commit(40);
  CHECK(nodes.cluster.Steps().empty());
  CHECK_FALSE(nodes.cluster.Exists(nodes.cluster.manifest(40)));
  REQUIRE(nodes.b.Commit(40).status().ok());
  CHECK(nodes.cluster.Exists(nodes.cluster.manifest(40)));
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
}

TEST_CASE("invariant 1: a file that was reported but is not on the store is no checkpoint") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  auto first = nodes.a.Commit(40);
  v1::CommitSaveRequest report = nodes.b.MakeReport(40);
  REQUIRE(
      nodes.cluster.posix->Remove(nodes.cluster.store() + "/gpt/" + report.files(0).path()).ok());
  CHECK(nodes.b.Send(report).status().code() == absl::StatusCode::kDataLoss);
  CHECK(first.status().code() == absl::StatusCode::kDataLoss);
  CHECK_FALSE(nodes.cluster.Exists(nodes.cluster.manifest(40)));
}

TEST_CASE("invariant 2: a failed save leaves the earlier checkpoint and its files go by age") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.Plan(50);
  v1::CommitSaveRequest report = nodes.a.MakeReport(50);
  const std::string file = nodes.cluster.store() + "/gpt/" + report.files(0).path();
  auto first = nodes.a.Send(report);
  v1::CommitSaveRequest failed = nodes.b.MakeReport(50);
  failed.set_error_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  failed.set_error_message("the disk is full");
  CHECK(nodes.b.Send(failed).status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(first.status().message()), Contains("node b") && Contains("disk is full"));
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
  CHECK(nodes.cluster.Exists(file));
  // The files are as old as the machine's clock says, so the test's clock must pass it.
  nodes.cluster.clock.Set(SystemClock().Now() + absl::Hours(2));
  nodes.cluster.alarms.Advance(absl::Minutes(20));
  nodes.cluster.RestartCoordinator();  // waits for the collection
  CHECK_FALSE(nodes.cluster.Exists(file));
  CHECK(nodes.cluster.Exists(nodes.cluster.manifest(40)));
}

TEST_CASE("invariant 6: the deadline of a save names the node that did not report") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  auto first = nodes.a.Commit(40);
  nodes.cluster.alarms.Advance(absl::Minutes(2));
  CHECK(first.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(first.status().message()),
             Contains("step 40 of job gpt") && Contains("rank 1 (node b)") && Contains("phase"));
}

TEST_CASE("a rank that changes its layout alone is named, and the next save plans anew") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.b.layouts[1].add_values("new");
  REQUIRE(nodes.a.Stage(50).status().ok());
  auto plan = nodes.b.Plan(50);
  CHECK(plan.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(plan.status().message()), Contains("rank 1 changed layout alone"));
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
  nodes.NextSave();
  nodes.Save(50);
}

// A coordinator and node b were restarted together: node a alone knows the plan.
struct LostPlan : TwoNodes {
  LostPlan() {
    Join();
    Save(40);
    cluster.RestartCoordinator();
  }
};

TEST_CASE("a plan that only one node still knows is made again from that node's report") {
  LostPlan nodes;
  // In either order.
  const bool asks_first = GENERATE(false, true);
  Answer<v1::PlanSaveResponse> plan;
  if (asks_first) plan = nodes.b.Plan(50);
  REQUIRE(nodes.a.Stage(50).status().ok());
  v1::CommitSaveRequest report = nodes.a.MakeReport(50);
  CHECK(nodes.a.Send(report).Wait()->need_layouts());
  report.mutable_ranks(0)->set_layout(nodes.a.layouts[0].SerializeAsString());
  auto first = nodes.a.Send(report);
  if (!asks_first) plan = nodes.b.Plan(50);
  INFO(plan.status().ToString());
  REQUIRE(plan.status().ok());
  nodes.b.UsePlan(*plan.Wait());
  CHECK(nodes.b.Commit(50).status().ok());
  CHECK(first.status().ok());
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40, 50});
}

TEST_CASE("invariant 6: who waits for a plan that another node knows is told so at the deadline") {
  LostPlan nodes;
  REQUIRE(nodes.a.Stage(50).status().ok());
  auto plan = nodes.b.Plan(50);
  nodes.cluster.alarms.Advance(absl::Minutes(2));
  CHECK(plan.status().code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(plan.status().message()),
             Contains("phase plan: waiting for rank 0 (node a)"));
}

TEST_CASE("a rank that changed its layout while the plan was lost is named all the same") {
  LostPlan nodes;
  nodes.b.layouts[1].add_values("new");
  auto plan = nodes.b.Plan(50);
  CHECK_FALSE(plan.answered());  // it may mean the same as node a
  const absl::Status staged = nodes.a.Stage(50).status();
  CHECK(staged.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(staged.message()), Contains("rank 1 changed layout alone"));
  CHECK(plan.status() == staged);
  nodes.NextSave();
  nodes.Save(50);
}

TEST_CASE("a committed step is refused, unless it is to be overwritten") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  CHECK(nodes.a.Plan(40).status().code() == absl::StatusCode::kAlreadyExists);
  nodes.a.overwrite = nodes.b.overwrite = true;
  nodes.Save(40);
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
}

TEST_CASE("a second attempt at a step in flight is refused") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  nodes.NextSave();
  CHECK(nodes.a.Plan(40).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a coordinator restarted in the middle of a save commits it from the reports") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  nodes.cluster.RestartCoordinator();
  v1::CommitSaveRequest report_a = nodes.a.MakeReport(40);
  v1::CommitSaveRequest report_b = nodes.b.MakeReport(40);
  const auto asked = nodes.a.Send(report_a).Wait();
  INFO(asked.status().ToString());
  REQUIRE(asked.ok());
  CHECK(asked->need_layouts());
  report_a.mutable_ranks(0)->set_layout(nodes.a.layouts[0].SerializeAsString());
  report_b.mutable_ranks(0)->set_layout(nodes.b.layouts[1].SerializeAsString());
  auto first = nodes.a.Send(report_a);
  auto second = nodes.b.Send(report_b);
  INFO(first.status().ToString());
  CHECK(first.status().ok());
  CHECK(second.status().ok());
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
  // Resent after the commit: the same answer, also by the next coordinator.
  CHECK(nodes.a.Send(report_a).Wait().ok());
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.a.Send(report_a).Wait().ok());
}

TEST_CASE("settling finishes what all nodes had staged before the new run loads") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  v1::CommitSaveRequest report_a = nodes.a.MakeReport(40);
  v1::CommitSaveRequest report_b = nodes.b.MakeReport(40);
  nodes.Restart("run2", 40, true, true);
  auto first = nodes.a.Load(std::nullopt);
  auto second = nodes.b.Load(std::nullopt);
  CHECK_FALSE(first.answered());
  auto commit = nodes.a.Send(report_a);
  REQUIRE(nodes.b.Send(report_b).status().ok());
  INFO(first.status().ToString());
  REQUIRE(first.Wait().ok());
  CHECK(first.Wait()->step() == 40);
}

TEST_CASE("settling abandons what one node had not staged, and refuses it from then on") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(30);
  nodes.Plan(40);
  v1::CommitSaveRequest report_a = nodes.a.MakeReport(40);
  REQUIRE(nodes.a.Stage(40).status().ok());
  nodes.Restart("run2", 40, true, false);
  auto first = nodes.a.Load(std::nullopt);
  auto second = nodes.b.Load(std::nullopt);
  INFO(first.status().ToString());
  REQUIRE(first.Wait().ok());
  CHECK(first.Wait()->step() == 30);
  CHECK(nodes.a.Send(report_a).status().code() == absl::StatusCode::kAborted);
  nodes.cluster.RestartCoordinator();
  const absl::Status late = nodes.a.Send(report_a).status();
  CHECK(late.code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(late.message()), Contains("epoch 1") && Contains("epoch 2"));
}

TEST_CASE("a node that is not in the new world may still report, within the grace") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(30);
  nodes.Plan(40);
  REQUIRE(nodes.a.Stage(40).status().ok());
  const v1::CommitSaveRequest report_a = nodes.a.MakeReport(40);
  const v1::CommitSaveRequest report_b = nodes.b.MakeReport(40);
  FakeNode whole(nodes.cluster, "c", {{0, MakeLayout({WholeShard("w", {4, 3})}, {"lr"})}});
  whole.nonce = "other";
  whole.epoch = whole.Join(1, "run2").Wait()->epoch();
  auto load = whole.Load(std::nullopt);
  SECTION("it does") {
    REQUIRE(nodes.b.Stage(40).status().ok());
    auto first = nodes.a.Send(report_a);
    REQUIRE(nodes.b.Send(report_b).status().ok());
    // None of the old nodes is in the new world: more could still be heard of.
    CHECK_FALSE(load.answered());
    nodes.cluster.alarms.Advance(absl::Seconds(6));
    INFO(load.status().ToString());
    REQUIRE(load.Wait().ok());
    CHECK(load.Wait()->step() == 40);
  }
  SECTION("it does not") {
    nodes.cluster.alarms.Advance(absl::Seconds(6));
    INFO(load.status().ToString());
    REQUIRE(load.Wait().ok());
    CHECK(load.Wait()->step() == 30);
  }
}

TEST_CASE("a left-over rank of a superseded run is refused, naming both epochs") {
  TwoNodes nodes;
  nodes.Join();
  FakeNode left_over(nodes.cluster, "a", nodes.a.layouts);
  nodes.Restart("run2", 40, false, false);
  left_over.save_number = 2;
  for (const absl::Status& status :
       {left_over.Plan(50).status(), left_over.Stage(50).status(), left_over.Commit(50).status()}) {
    CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(status.message()), Contains("epoch 1") && Contains("epoch 2"));
  }
  CHECK(left_over.Join(2, "run1").status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("invariant 7: another user may not join, load or remove a job") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  // First what is answered at once: a join that is let in waits for the other rank.
  REQUIRE(nodes.cluster.Remove(40, 2000).status().code() == absl::StatusCode::kPermissionDenied);
  nodes.a.user_id = 2000;
  CHECK(nodes.a.Join(2, "theirs").status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(nodes.a.Load(40).status().code() == absl::StatusCode::kPermissionDenied);
  CHECK(nodes.cluster.Steps() == std::vector<uint64_t>{40});
}

TEST_CASE("invariant 7: a report may only name its own node's and attempt's files") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  v1::CommitSaveRequest report = nodes.a.MakeReport(40);
  report.mutable_files(0)->set_path("step-40/data-e1s1-b-0.safetensors");
  CHECK(nodes.a.Send(report).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("invariant 4: the tags of a save have limits, for one node and for all together") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  v1::CommitSaveRequest report_a = nodes.a.MakeReport(40);
  v1::CommitSaveRequest report_b = nodes.b.MakeReport(40);
  std::string limit = std::to_string(kMostTags);
  absl::Status status;
  SECTION("too many") {
    for (size_t i = 0; i <= kMostTags; ++i) (*report_a.mutable_tags())[std::to_string(i)] = "x";
    status = nodes.a.Send(report_a).status();
  }
  SECTION("too many together") {
    for (size_t i = 0; i < kMostTags; ++i) (*report_a.mutable_tags())[std::to_string(i)] = "x";
    (*report_b.mutable_tags())["one more"] = "x";
    auto first = nodes.a.Send(report_a);
    status = nodes.b.Send(report_b).status();
  }
  SECTION("too long") {
    limit = std::to_string(kLongestTagBytes);
    (*report_a.mutable_tags())["x"] = std::string(kLongestTagBytes + 1, 'x');
    status = nodes.a.Send(report_a).status();
  }
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Contains(limit) && Contains("tag"));
  CHECK(nodes.cluster.Steps().empty());
}

TEST_CASE("values that differ come back to their ranks, and need a rule in another world") {
  TwoNodes nodes;
  nodes.Join();
  nodes.a.value_of_rank["lr/0"] = "zero";
  nodes.b.value_of_rank["lr/1"] = "one";
  nodes.Save(40);
  auto first = nodes.a.Load(40);
  auto second = nodes.b.Load(40);
  REQUIRE(second.Wait().ok());
  CHECK(second.Wait()->ranks(0).small(0).saved_ranks(0) == 1);
  FakeNode whole(nodes.cluster, "a", {{0, MakeLayout({WholeShard("w", {4, 3})}, {"lr"})}});
  whole.nonce = "other";
  whole.epoch = whole.Join(1, "run2").Wait()->epoch();
  CHECK_THAT(std::string(whole.Load(40).status().message()), Contains("lr differs"));
  v1::LoadOptions options;
  options.set_per_rank_rule(v1::PER_RANK_RULE_ALL);
  ++whole.load_number;
  CHECK(whole.Load(40, options).Wait()->ranks(0).small_size() == 2);
}

TEST_CASE("an unknown step lists those that exist") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  auto first = nodes.a.Load(41);
  auto second = nodes.b.Load(41);
  CHECK(first.status().code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(first.status().message()), Contains("step 40"));
}

TEST_CASE("a removed checkpoint is gone from store and catalog, but not while it is loaded") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  auto first = nodes.a.Load(40);
  auto second = nodes.b.Load(40);
  REQUIRE(first.Wait().ok());
  CHECK(nodes.cluster.Remove(40).status().code() == absl::StatusCode::kFailedPrecondition);
  nodes.cluster.clock.Set(nodes.cluster.clock.Now() + absl::Hours(3));
  REQUIRE(nodes.cluster.Remove(40).status().ok());
  CHECK_FALSE(nodes.cluster.Exists(nodes.cluster.store() + "/gpt/step-40"));
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps().empty());
}

TEST_CASE("two coordinators can't share a catalog") {
  FakeCluster cluster;
  const auto second = cluster.MakeCoordinator();
  CHECK(second.status().code() == absl::StatusCode::kFailedPrecondition);
  CHECK_THAT(std::string(second.status().message()), Contains("another coordinator"));
}

}  // namespace
}  // namespace ckptd
