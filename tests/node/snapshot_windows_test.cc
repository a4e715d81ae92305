#include "daemon/node/snapshot_windows.h"

#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST_CASE("images that fit together are leased whole, larger ones in two windows per rank") {
  const std::vector<uint64_t> images = {3 * kMiB, 4 * kMiB, 1};
  CHECK(PlanWindows(images, kMiB, 9 * kMiB)->window_bytes == 0);
  const absl::StatusOr<SnapshotWindows> windows = PlanWindows(images, kMiB, 7 * kMiB);
  REQUIRE(windows.ok());
  CHECK(windows->window_bytes == kMiB);
  CHECK(windows->expected_bytes == 7 * kMiB);
}

TEST_CASE("invariant 4: where even windows don't fit, the save is refused with the flag to set") {
  const std::vector<uint64_t> images(64, 4 * kMiB);
  const absl::Status status = PlanWindows(images, kMiB, 16 * kMiB).status();
  CHECK(absl::IsResourceExhausted(status));
  CHECK_THAT(std::string(status.message()),
             Contains("33.0 MiB") && Contains("16.0 MiB") && Contains("--arena-bytes=34603008"));
}

// One rank whose image is larger than the arena; it fills its windows by hand.
struct LargeRank {
  explicit LargeRank(NodeFixture& given) : fixture(given), trainer(given, 0) {
    REQUIRE(trainer.Join("gpt", 1).Get().ok());
    trainer.SetState({{"w", state}}, {});
    Pending<v1::BeginSaveResponse> begun = trainer.BeginSave(1, 1);
    REQUIRE(begun.Get().ok());
    first = *begun.Get();
    lease = first.tensors();
  }

  uint64_t LeaseEnd() const {
    const v1::Segment& last = *lease.segments().rbegin();
    return last.image_offset() + last.length_bytes();
  }

  // Copies what of the tensor lies in the present window.
  void Fill() {
    const uint64_t tensor = first.placements(0).image_offset();
    for (const v1::Segment& segment : lease.segments()) {
      for (uint64_t at = 0; at < segment.length_bytes(); ++at) {
        const uint64_t image = segment.image_offset() + at;
        if (image < tensor || image - tensor >= state.size()) continue;
        trainer.Map(segment.slab_id())[segment.slab_offset() + at] = state[image - tensor];
      }
    }
  }

  absl::StatusOr<v1::ExtendSnapshotResponse> Extend(uint64_t copied_bytes) {
    v1::ExtendSnapshotRequest request;
    request.set_job("gpt");
    request.mutable_attempt()->set_epoch(1);
    request.mutable_attempt()->set_save_number(1);
    request.set_copied_bytes(copied_bytes);
    request.set_timeout_seconds(30);
    Pending<v1::ExtendSnapshotResponse> extended;
    fixture.node->ExtendSnapshot(trainer.session(), request, extended.done());
    return extended.Get();
  }

  void FillAll() {
    for (Fill(); LeaseEnd() < lease.image_bytes(); Fill()) {
      auto next = Extend(LeaseEnd());
      INFO(next.status().ToString());
      REQUIRE(next.ok());
      lease = next->tensors();
    }
  }

  NodeFixture& fixture;
  TestTrainer trainer;
  const std::string state = Pattern(41'000'003);  // the arena has 16 MiB
  v1::BeginSaveResponse first;
  v1::Lease lease;
};

TEST_CASE("invariant 3: a state larger than the arena goes through it, byte for byte") {
  NodeFixture fixture({.keep_images = true});
  LargeRank rank(fixture);
  CHECK(rank.LeaseEnd() < rank.lease.image_bytes());
  rank.FillAll();
  REQUIRE(rank.trainer.Finish(1).ok());
  REQUIRE(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK((*rank.trainer.Load("w", rank.state.size(), 1) == rank.state));
  CHECK(fixture.probe.mismatches() == 0);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("a rank can't skip a part of its image, nor finish before its end") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  CHECK(absl::IsInvalidArgument(rank.Extend(rank.LeaseEnd() + 4096).status()));
  CHECK(absl::IsInvalidArgument(rank.Extend(0).status()));
  CHECK(absl::IsFailedPrecondition(rank.trainer.Finish(1)));
  rank.FillAll();
  CHECK(absl::IsFailedPrecondition(rank.Extend(rank.LeaseEnd()).status()));
  CHECK(rank.trainer.Finish(1).ok());
  CHECK(rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
}

TEST_CASE("invariant 2: a trainer that dies between two windows leaves neither file nor memory") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  rank.Fill();
  auto next = rank.Extend(rank.LeaseEnd());
  REQUIRE(next.ok());
  rank.trainer.Disconnect();
  fixture.probe.AwaitArenaEmpty();
  fixture.node->Stop();
  CHECK(fixture.coordinator.commits().back().error_code() != 0);
  auto entries = fixture.posix->List(fixture.StorePath() + "/gpt/step-1");
  CHECK((absl::IsNotFound(entries.status()) || entries->empty()));
}

TEST_CASE("a disk that fills between two windows fails the save, saying how much was missing") {
  NodeFixture fixture;
  LargeRank rank(fixture);
  fixture.files.Inject({.operation = FileOperation::kWriteAt,
                        .from_call = 2,
                        .calls = 1 << 20,
                        .status = absl::ResourceExhaustedError("no space")});
  absl::Status failed;
  while (failed.ok() && rank.LeaseEnd() < rank.lease.image_bytes()) {
    auto next = rank.Extend(rank.LeaseEnd());
    failed = next.status();
    if (next.ok()) rank.lease = next->tensors();
  }
  if (failed.ok()) failed = rank.trainer.Finish(1);
  auto status = rank.trainer.Wait(1, v1::SAVE_PHASE_DURABLE);
  REQUIRE(status.ok());
  CHECK(status->phase() == v1::SAVE_PHASE_FAILED);
  CHECK_THAT(status->error_message(), Contains("no space") && Contains("the file needs 39.1 MiB"));
  rank.trainer.Finish(1).IgnoreError();
  fixture.probe.AwaitArenaEmpty();
}

}  // namespace
}  // namespace ckptd
