// What a commit, an overwrite and a removal leave when storage fails or power goes.
#include "tests/coordinator/two_nodes.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;
using Steps = std::vector<uint64_t>;

constexpr int kForEver = 1 << 20;

Fault From(FileOperation operation, int call, bool after_effect, const std::string& path_part) {
  return {.operation = operation,
          .from_call = call,
          .calls = kForEver,
          .path_part = path_part,
          .after_effect = after_effect};
}

FileOperation AnyOperation() {
  return GENERATE(FileOperation::kList, FileOperation::kReadWhole, FileOperation::kCommit,
                  FileOperation::kCreateDirectories, FileOperation::kSyncDirectory,
                  FileOperation::kRemove, FileOperation::kRemoveDirectory);
}

TEST_CASE(
    "invariant 1: wherever storage fails in a commit, what was answered is what power leaves") {
  const FileOperation operation = AnyOperation();
  const bool after_effect = GENERATE(false, true);
  const uint64_t seed = GENERATE(1, 2, 3);
  INFO(FileOperationName(operation) << (after_effect ? ", after its effect" : ""));
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.cluster.files->Inject(From(operation, 1, after_effect, "step-50"));
  const bool saved = nodes.TrySave(50).ok();
  const Steps expected = saved ? Steps{40, 50} : Steps{40};
  CHECK(nodes.cluster.Steps() == expected);
  nodes.cluster.LosePower(seed);
  CHECK(nodes.cluster.Steps() == expected);
  nodes.cluster.CheckThatAllAreWhole();
}

TEST_CASE("invariant 2: wherever storage fails in an overwrite, the older checkpoint stays whole") {
  const FileOperation operation = AnyOperation();
  const bool after_effect = GENERATE(false, true);
  INFO(FileOperationName(operation) << (after_effect ? ", after its effect" : ""));
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.a.overwrite = nodes.b.overwrite = true;
  // The commit fails once; putting the older manifest back is another call.
  Fault fault = From(operation, 1, after_effect, "step-40");
  fault.calls = 1;
  nodes.cluster.files->Inject(fault);
  const bool saved = nodes.TrySave(40).ok();
  CHECK(nodes.cluster.Summary(40).attempt().save_number() == (saved ? 2 : 1));
  nodes.cluster.LosePower(7);
  CHECK(nodes.cluster.Summary(40).attempt().save_number() == (saved ? 2 : 1));
  nodes.cluster.CheckThatAllAreWhole();
  nodes.cluster.LetCollectionRun();
  nodes.cluster.CheckThatAllAreWhole();
}

TEST_CASE("invariant 1: wherever a removal stops, what is still listed is whole") {
  const FileOperation operation = AnyOperation();
  const int call = GENERATE(1, 2, 3);
  const bool after_effect = GENERATE(false, true);
  INFO(FileOperationName(operation) << " " << call << (after_effect ? ", after its effect" : ""));
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(30);
  nodes.Save(40);
  nodes.cluster.files->Inject(From(operation, call, after_effect, "step-40"));
  const bool removed = nodes.cluster.Remove(40).status().ok();
  nodes.cluster.LosePower(5);
  if (removed) CHECK(nodes.cluster.Steps() == Steps{30});
  nodes.cluster.CheckThatAllAreWhole();
  nodes.cluster.LetCollectionRun();
  nodes.cluster.CheckThatAllAreWhole();
}

TEST_CASE("a commit that can't be taken back stops the job's commits until it can") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Save(40);
  nodes.cluster.files->Inject(From(FileOperation::kCommit, 1, true, "step-50"));
  nodes.cluster.files->Inject(From(FileOperation::kRemove, 1, false, "step-50/manifest"));
  CHECK_THAT(std::string(nodes.TrySave(50).message()), Contains("in doubt"));
  CHECK(nodes.cluster.Steps() == Steps{40});
  CHECK_THAT(std::string(nodes.TrySave(60).message()), Contains("step 50"));
  CHECK_FALSE(nodes.cluster.Remove(40).status().ok());
  CHECK(nodes.cluster.Steps() == Steps{40});
  nodes.cluster.files->ClearFaults();
  CHECK(nodes.TrySave(60).ok());
  CHECK_FALSE(nodes.cluster.Exists(nodes.cluster.manifest(50)));
  CHECK(nodes.cluster.Steps() == Steps{40, 60});
  nodes.cluster.RestartCoordinator();
  CHECK(nodes.cluster.Steps() == Steps{40, 60});
}

TEST_CASE("a report that comes again while the commit runs neither breaks nor changes it") {
  TwoNodes nodes;
  nodes.Join();
  nodes.Plan(40);
  nodes.cluster.files->CloseGate(FileOperation::kCommit);
  auto first = nodes.a.Commit(40);
  auto second = nodes.b.Commit(40);
  REQUIRE(nodes.cluster.files->AwaitBlocked(1));
  // The same attempt, but of another layout: a confused node.
  FakeNode confused(nodes.cluster, "b", {{1, MakeLayout({WholeShard("x", {2})})}});
  CHECK(confused.Stage(40).status().ok());
  CHECK(confused.Plan(40).status().code() == absl::StatusCode::kFailedPrecondition);
  nodes.cluster.files->OpenGate();
  CHECK(first.status().ok());
  CHECK(second.status().ok());
  CHECK(nodes.cluster.Steps() == Steps{40});
}

}  // namespace
}  // namespace ckptd
