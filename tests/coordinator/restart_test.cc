// What a coordinator knows after a restart, with and without its catalog.
#include <filesystem>

#include "tests/coordinator/two_nodes.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;
using Steps = std::vector<uint64_t>;

std::string DataFile(TwoNodes& nodes, uint64_t step) {
  return nodes.cluster.store() + "/gpt/" + nodes.a.MakeReport(step).files(0).path();
}

TEST_CASE("the latest is the one saved last, also after a restart and without the catalog") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(1000);
  nodes.Save(500);
  SECTION("restart") { nodes.cluster.RestartCoordinator(); }
  SECTION("catalog lost") { nodes.cluster.LoseCatalog(); }
  CHECK(nodes.cluster.Steps() == Steps{500, 1000});
  CHECK(nodes.cluster.Summary(500).latest());
  CHECK_FALSE(nodes.cluster.Summary(1000).latest());
}

TEST_CASE("the latest is the save asked for last, also when an earlier one commits after it") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(1000);
  const v1::CommitSaveRequest slow_a = nodes.a.MakeReport(1000);
  const v1::CommitSaveRequest slow_b = nodes.b.MakeReport(1000);
  nodes.NextSave();
  nodes.Save(500);
  auto first = nodes.a.Send(slow_a);
  REQUIRE(nodes.b.Send(slow_b).status().ok());
  REQUIRE(first.status().ok());
  SECTION("live") {}
  SECTION("restart") { nodes.cluster.RestartCoordinator(); }
  SECTION("catalog lost") { nodes.cluster.LoseCatalog(); }
  CHECK(nodes.cluster.Steps() == Steps{500, 1000});
  CHECK(nodes.cluster.Summary(500).latest());
  CHECK_FALSE(nodes.cluster.Summary(1000).latest());
  FakeNode reader(nodes.cluster, "r", {{0, MakeLayout({WholeShard("w", {4, 3})}, {"lr"})}});
  reader.epoch = 0;
  CHECK(reader.Load(std::nullopt).Wait()->step() == 500);
}

TEST_CASE("without the catalog neither epochs nor owners start anew") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.Save(50);
  nodes.cluster.LoseCatalog();
  // What an older epoch still sends is refused.
  CHECK_FALSE(nodes.a.Plan(60).status().ok());
  FakeNode other(nodes.cluster, "c", {{0, MakeLayout({}, {"lr"})}});
  other.user_id = 2000;
  CHECK(other.Join(1, "theirs").status().code() == absl::StatusCode::kPermissionDenied);
  nodes.a.nonce = nodes.b.nonce = "second";
  nodes.a.save_number = nodes.b.save_number = 1;
  nodes.Join("run2");
  CHECK(nodes.a.epoch == 2);
  nodes.Save(60);
  CHECK(nodes.cluster.Summary(60).latest());
}

TEST_CASE("without the catalog the epoch passes that of a failed attempt's files") {
  TwoNodes nodes;
  nodes.Join();
  nodes.a.nonce = nodes.b.nonce = "second";
  nodes.Join("run2");
  nodes.Plan(40);
  REQUIRE(nodes.cluster.Exists(DataFile(nodes, 40)));
  nodes.cluster.LoseCatalog();
  nodes.a.nonce = nodes.b.nonce = "third";
  nodes.Join("run3");
  CHECK(nodes.a.epoch == 3);
}

TEST_CASE("without the catalog the epoch passes that of an attempt that only a node still holds") {
  TwoNodes nodes;
  nodes.Join();
  nodes.cluster.LoseCatalog();
  nodes.Restart("run2", 40, true, false);
  CHECK(nodes.a.epoch == 2);
  nodes.a.epoch = 1;
  CHECK(nodes.a.Stage(40).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("without the catalog the epoch passes that of idle trainers whom only a node knows") {
  TwoNodes nodes;
  nodes.Join();
  nodes.cluster.LoseCatalog();
  nodes.a.nonce = nodes.b.nonce = "second";
  nodes.b.newest_epoch = 1;
  nodes.Join("run2");
  CHECK(nodes.a.epoch == 2);
}

TEST_CASE("a damaged manifest is told of, its files are kept, and once mended it is back") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.Save(50);
  const std::string whole = ReadAll(nodes.cluster.manifest(40));
  std::string damaged = whole;
  SECTION("cut off within its frame") { damaged.resize(20); }
  SECTION("cut off") { damaged.resize(whole.size() - 1); }
  SECTION("a flipped bit") { damaged[whole.size() / 2] ^= 1; }
  SECTION("a flipped bit in the checksum") { damaged[29] ^= 1; }
  SECTION("empty") { damaged.clear(); }
  WriteAll(nodes.cluster.manifest(40), damaged);
  if (damaged.size() == whole.size()) nodes.cluster.LoseCatalog();
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps() == Steps{50});
  CHECK_THAT(nodes.cluster.probe.text(), Contains("step 40"));
  nodes.cluster.LetCollectionRun();
  WriteAll(nodes.cluster.manifest(40), whole);
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps() == Steps{40, 50});
  nodes.cluster.CheckThatAllAreWhole();
}

TEST_CASE("invariant 7: what a user puts into a job's folder keeps no coordinator from starting") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  const std::string job = nodes.cluster.store() + "/gpt";
  std::filesystem::create_directory_symlink("/etc", job + "/step-7");
  std::filesystem::create_directory(job + "/step-8");
  std::filesystem::create_directory(job + "/step-8/manifest.pb");
  std::filesystem::create_directory(job + "/step-9");
  std::filesystem::create_symlink("/etc/passwd", job + "/step-9/manifest.pb");
  std::filesystem::create_symlink("/etc", nodes.cluster.store() + "/other");
  nodes.cluster.files->Inject({.operation = FileOperation::kList, .path_part = "step-8"});
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps() == Steps{40});
}

TEST_CASE("a manifest that can't be read now keeps its record for when it can") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.cluster.files->Inject({.operation = FileOperation::kOpen, .path_part = "step-40"});
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps().empty());
  nodes.cluster.LetCollectionRun();
  CHECK(nodes.cluster.Steps() == Steps{40});
  nodes.cluster.CheckThatAllAreWhole();
}

TEST_CASE("files that wait for a coordinator that was away are not collected") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  v1::CommitSaveRequest report_a = nodes.a.MakeReport(40);
  v1::CommitSaveRequest report_b = nodes.b.MakeReport(40);
  nodes.cluster.clock.Set(SystemClock().Now() + absl::Hours(3));
  nodes.cluster.RestartCoordinator();
  nodes.cluster.alarms.Advance(absl::Minutes(20));
  nodes.cluster.RestartCoordinator();  // waits for the collection
  report_a.mutable_ranks(0)->set_layout(nodes.a.layouts[0].SerializeAsString());
  report_b.mutable_ranks(0)->set_layout(nodes.b.layouts[1].SerializeAsString());
  auto first = nodes.a.Send(report_a);
  INFO(nodes.b.Send(report_b).status().ToString());
  CHECK(first.status().ok());
  nodes.cluster.CheckThatAllAreWhole();
}

TEST_CASE("invariant 2: leftovers of settled worlds, temporary files and empty folders go by age") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(30);
  nodes.Plan(40);
  const std::string file = DataFile(nodes, 40);
  const std::string temporary = nodes.cluster.store() + "/gpt/step-30/.tmp-left";
  const std::string foreign = nodes.cluster.store() + "/gpt/step-30/notes.txt";
  WriteAll(temporary, "left");
  WriteAll(foreign, "mine");
  nodes.Restart("run2", 40, false, false);
  nodes.cluster.alarms.Advance(absl::Minutes(20));
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Exists(file));  // too young
  CHECK(nodes.cluster.Exists(temporary));
  nodes.cluster.LetCollectionRun();
  CHECK_FALSE(nodes.cluster.Exists(file));
  CHECK_FALSE(nodes.cluster.Exists(temporary));
  CHECK_FALSE(nodes.cluster.Exists(nodes.cluster.store() + "/gpt/step-40"));
  CHECK(nodes.cluster.Exists(foreign));
  nodes.cluster.CheckThatAllAreWhole();
}

}  // namespace
}  // namespace ckptd
