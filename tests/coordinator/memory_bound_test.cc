// What the coordinator's memory grows by with each shard: the numbers that
// docs/architecture.md gives, measured on the heap with the messages that nodes send.
#include <malloc.h>

#include "tests/catch.h"
#include "tests/coordinator/fake_cluster.h"

namespace ckptd {
namespace {

constexpr uint64_t kShards = 20'000;
// Per shard, where each is a tensor of its own with a name of kNameBytes and two dimensions.
// Measured: 616, 1602 and 1021, and up to 450 more while an answer is on its way.
constexpr size_t kNameBytes = 48;
constexpr uint64_t kMostKeptBytes = 1024;
constexpr uint64_t kMostCommittingBytes = 2048;
constexpr uint64_t kMostLoadingBytes = 2048;

// In use, of all threads. Sanitizers have a heap of their own: there nothing seems to grow.
uint64_t HeapBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

// Since `before`, beside what the test itself has made since, per shard.
uint64_t GrownPerShard(uint64_t before, uint64_t own_bytes) {
  const uint64_t now = HeapBytes();
  return now < before + own_bytes ? 0 : (now - before - own_bytes) / kShards;
}

v1::Layout ManyTensors() {
  std::vector<v1::Shard> shards;
  for (uint64_t i = 0; i < kShards; ++i) {
    std::string name = "model.layers." + std::to_string(i);
    name.resize(kNameBytes, '.');
    shards.push_back(WholeShard(name, {4, 3}));
  }
  return MakeLayout(shards);
}

TEST_CASE("invariant 4: what the coordinator holds of a save and a load is bounded per shard") {
  FakeCluster cluster;
  FakeNode node(cluster, "a", {{0, ManyTensors()}});
  REQUIRE(node.Join(1).status().ok());

  uint64_t before = HeapBytes();
  const v1::PlanSaveResponse plan = *node.Plan(40).Wait();
  const uint64_t kept = GrownPerShard(before, plan.SpaceUsedLong());
  node.UsePlan(plan);

  const v1::CommitSaveRequest report = node.MakeReport(40);
  cluster.files->CloseGate(FileOperation::kCommit);
  before = HeapBytes();
  auto committed = node.Send(report);
  REQUIRE(cluster.files->AwaitBlocked(1));
  // And gRPC's own, until it is answered.
  const uint64_t committing = GrownPerShard(before, 0) + report.SpaceUsedLong() / kShards;
  cluster.files->OpenGate();
  REQUIRE(committed.status().ok());

  before = HeapBytes();
  auto loaded = node.Load(40);
  REQUIRE(loaded.status().ok());
  const uint64_t loading = GrownPerShard(before, 0);

  INFO("plan " << kept << ", committing " << committing << ", loading " << loading);
  CHECK(kept <= kMostKeptBytes);
  CHECK(committing <= kMostCommittingBytes);
  CHECK(loading <= kMostLoadingBytes);
}

}  // namespace
}  // namespace ckptd
