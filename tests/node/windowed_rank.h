// Ranks whose state is larger than the arena. They fill and give back their windows by hand.
#ifndef CKPTD_TESTS_NODE_WINDOWED_RANK_H_
#define CKPTD_TESTS_NODE_WINDOWED_RANK_H_

#include <string.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {

// One tensor, "w0" of rank 0.
struct WindowedRank {
  WindowedRank(NodeFixture& given, uint32_t rank, size_t state_bytes, const std::string& value = "")
      : fixture(given),
        trainer(given, rank),
        name(absl::StrCat("w", rank)),
        state(Pattern(state_bytes, static_cast<char>(rank))) {
    trainer.timeout_seconds = 600;
    std::vector<TestTensor> values;
    if (!value.empty()) values.push_back({"v", value});
    trainer.SetState({{name, state}}, values);
  }

  // Saves step n as save number n.
  void StartSave(uint64_t n) {
    number = n;
    begun = trainer.BeginSave(n, n);
  }
  void AwaitLease() {
    INFO(begun.Get().status().ToString());
    REQUIRE(begun.Get().ok());
    lease = begun.Get()->tensors();
    v1::BeginSaveResponse small = *begun.Get();
    small.clear_placements();
    trainer.Copy(small);
  }

  uint64_t LeaseEnd() const {
    const v1::Segment& last = *lease.segments().rbegin();
    return last.image_offset() + last.length_bytes();
  }
  bool HasEnd() const { return LeaseEnd() >= lease.image_bytes(); }

  // Copies what of the tensor lies in the present window.
  void Fill() {
    const uint64_t tensor = begun.Get()->placements(0).image_offset();
    for (const v1::Segment& segment : lease.segments()) {
      const uint64_t begin = std::max(segment.image_offset(), tensor);
      const uint64_t end =
          std::min(segment.image_offset() + segment.length_bytes(), tensor + state.size());
      if (begin >= end) continue;
      memcpy(
          trainer.Map(segment.slab_id()) + segment.slab_offset() + (begin - segment.image_offset()),
          state.data() + (begin - tensor), end - begin);
    }
  }

  Pending<v1::ExtendSnapshotResponse> Extend(uint64_t copied_bytes, const SessionPtr& session,
                                             double timeout_seconds = 600) const {
    v1::ExtendSnapshotRequest request;
    request.set_job(job);
    request.mutable_attempt()->set_epoch(1);
    request.mutable_attempt()->set_save_number(number);
    request.set_copied_bytes(copied_bytes);
    request.set_timeout_seconds(timeout_seconds);
    Pending<v1::ExtendSnapshotResponse> extended;
    fixture.node->ExtendSnapshot(session, request, extended.done());
    return extended;
  }
  Pending<v1::ExtendSnapshotResponse> StartExtend(double timeout_seconds = 600) const {
    return Extend(LeaseEnd(), trainer.session(), timeout_seconds);
  }
  void Take(Pending<v1::ExtendSnapshotResponse> next) {
    INFO(next.Get().status().ToString());
    REQUIRE(next.Get().ok());
    lease = next.Get()->tensors();
  }

  void FillToTheEnd() {
    for (Fill(); !HasEnd(); Fill()) Take(StartExtend());
  }

  NodeFixture& fixture;
  TestTrainer trainer;
  const std::string name, state;
  std::string job = "gpt";
  uint64_t number = 0;
  Pending<v1::BeginSaveResponse> begun;
  v1::Lease lease;
};

// Its image of 39.1 MiB goes through the arena of 16 MiB in windows of 8.
struct LargeRank : WindowedRank {
  explicit LargeRank(NodeFixture& given) : WindowedRank(given, 0, 41'000'003) {
    REQUIRE(trainer.Join("gpt", 1).Get().ok());
    StartSave(1);
    AwaitLease();
  }
};

// Both of one node and world.
inline void JoinTogether(WindowedRank& first, WindowedRank& second) {
  Pending<v1::JoinResponse> joined = first.trainer.Join(first.job, 2);
  REQUIRE(second.trainer.Join(second.job, 2).Get().ok());
  REQUIRE(joined.Get().ok());
}

inline void SaveTogether(WindowedRank& first, WindowedRank& second, uint64_t number) {
  first.StartSave(number);
  second.StartSave(number);
  first.AwaitLease();
  second.AwaitLease();
}

inline void FinishDurably(WindowedRank& first, WindowedRank& second) {
  REQUIRE(first.trainer.Finish(first.number).ok());
  REQUIRE(second.trainer.Finish(first.number).ok());
  REQUIRE(first.trainer.Wait(first.number, v1::SAVE_PHASE_DURABLE)->phase() ==
          v1::SAVE_PHASE_DURABLE);
}

// Loads both tensors in the first rank, and compares.
inline void CheckSaved(WindowedRank& first, WindowedRank& second) {
  const v1::BeginLoadRequest both = first.trainer.LoadRequest(
      1, {{first.name, first.state.size()}, {second.name, second.state.size()}});
  const v1::BeginLoadRequest nothing = second.trainer.LoadRequest(1, {});
  Pending<v1::BeginLoadResponse> loads[] = {first.trainer.BeginLoad(both),
                                            second.trainer.BeginLoad(nothing)};
  REQUIRE(loads[0].Get().ok());
  REQUIRE(loads[1].Get().ok());
  auto got = first.trainer.Receive(both, *loads[0].Get());
  REQUIRE(got.ok());
  REQUIRE(second.trainer.Receive(nothing, *loads[1].Get()).ok());
  CHECK((got->first == std::vector<std::string>{first.state, second.state}));
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_NODE_WINDOWED_RANK_H_
