// Loads are planned from the catalog, and only while storage says the same.
#include <filesystem>

#include "tests/coordinator/two_nodes.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

struct TwoSteps : TwoNodes {
  TwoSteps() {
    Join();
    Save(40);
    Save(50);
  }
  absl::StatusOr<v1::PlanLoadResponse> Load(std::optional<uint64_t> step) {
    ++a.load_number, ++b.load_number;
    auto first = a.Load(step);
    auto second = b.Load(step);
    CHECK(first.status() == second.status());
    return first.Wait();
  }
};

TEST_CASE("invariant 1: a manifest that was damaged under a live catalog fails the load, by name") {
  TwoSteps nodes;
  const std::string path = nodes.cluster.manifest(50);
  const std::string whole = ReadAll(path);
  std::string damaged = whole;
  SECTION("a flipped bit") { damaged[whole.size() / 2] ^= 1; }
  SECTION("a flipped bit in the frame") { damaged[29] ^= 1; }
  SECTION("cut off") { damaged.resize(whole.size() - 1); }
  SECTION("empty") { damaged.clear(); }
  SECTION("another step's") { damaged = ReadAll(nodes.cluster.manifest(40)); }
  WriteAll(path, damaged);
  for (const std::optional<uint64_t>& step : {std::optional<uint64_t>(50), {}}) {
    const absl::Status status = nodes.Load(step).status();
    CHECK(status.code() == absl::StatusCode::kDataLoss);
    CHECK_THAT(std::string(status.message()), Contains("step 50 of job gpt") && Contains(path) &&
                                                  Contains("ckptctl verify gpt 50"));
  }
  CHECK(nodes.Load(40).ok());
  WriteAll(path, whole);
  CHECK(nodes.Load(50).ok());
}

TEST_CASE("invariant 1: without its manifest a checkpoint is none, and its files are left alone") {
  TwoSteps nodes;
  const std::string path = nodes.cluster.manifest(50);
  const std::string whole = ReadAll(path);
  REQUIRE(std::filesystem::remove(path));
  const absl::Status status = nodes.Load(50).status();
  CHECK(status.code() == absl::StatusCode::kNotFound);
  CHECK_THAT(std::string(status.message()), Contains(path) && Contains("is gone"));
  CHECK(nodes.Load(40).ok());
  WriteAll(path, whole);
  CHECK(nodes.Load(50).ok());
}

TEST_CASE("a load of a step that is just being overwritten reads the older one") {
  TwoSteps nodes;
  nodes.a.overwrite = nodes.b.overwrite = true;
  nodes.Plan(50);
  nodes.cluster.files->CloseGate(FileOperation::kCommit);
  auto first = nodes.a.Commit(50);
  auto second = nodes.b.Commit(50);
  REQUIRE(nodes.cluster.files->AwaitBlocked(1));
  // As it is between the new manifest's appearance and the catalog's record of it.
  const std::string path = nodes.cluster.manifest(50);
  WriteAll(path, ReadAll(nodes.cluster.manifest(40)));
  const auto loaded = nodes.Load(50);
  nodes.cluster.files->OpenGate();
  CHECK(first.status().ok());
  CHECK(second.status().ok());
  INFO(loaded.status().ToString());
  REQUIRE(loaded.ok());
  CHECK_THAT(loaded->files(0).path(), Contains("e1s2"));
}

}  // namespace
}  // namespace ckptd
