// Loads of several ranks, of values, of readers.
#include <thread>

#include "storage/file_system/file_system.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

uint64_t BytesRead(const NodeFixture& fixture) {
  uint64_t bytes = 0;
  for (const FileOperationRecord& record : fixture.files.records()) {
    if (record.operation == FileOperation::kReadAt) bytes += record.bytes;
  }
  return bytes;
}

TEST_CASE("invariant 5: each block of storage is read once, however many ranks want it") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  // The odd size puts the boundaries of w's windows inside of blocks.
  const std::string odd = Pattern(5001), w = Pattern(9'876'543);
  first.SetState({{"odd", odd}, {"w", w}}, {{"step", "7"}, {"rng", "first"}});
  second.SetState({{"odd", odd}, {"w", w}}, {{"step", "7"}, {"rng", "second"}});
  Pending<v1::BeginSaveResponse> saves[] = {first.BeginSave(1, 1), second.BeginSave(1, 1)};
  first.Copy(*saves[0].Get());
  second.Copy(*saves[1].Get());
  REQUIRE(first.Finish(1).ok());
  REQUIRE(second.Finish(1).ok());
  REQUIRE(first.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);

  const v1::BeginLoadRequest wanted[] = {
      first.LoadRequest(1, {{"w", w.size()}, {"odd", odd.size()}}, {"rng", "step"}),
      second.LoadRequest(1, {{"odd", odd.size()}, {"w", w.size()}}, {"step", "rng"})};
  Pending<v1::BeginLoadResponse> begun[] = {first.BeginLoad(wanted[0]),
                                            second.BeginLoad(wanted[1])};
  REQUIRE(begun[0].Get().ok());
  REQUIRE(begun[1].Get().ok());
  // Side by side: a window is read again only when both have given it back.
  absl::StatusOr<std::pair<std::vector<std::string>, std::vector<std::string>>> got[2];
  std::thread other([&] { got[1] = second.Receive(wanted[1], *begun[1].Get()); });
  got[0] = first.Receive(wanted[0], *begun[0].Get());
  other.join();
  REQUIRE(got[0].ok());
  REQUIRE(got[1].ok());
  CHECK((got[0]->first == std::vector<std::string>{w, odd}));
  CHECK((got[1]->first == std::vector<std::string>{odd, w}));
  CHECK((got[0]->second == std::vector<std::string>{"first", "7"}));
  CHECK((got[1]->second == std::vector<std::string>{"7", "second"}));

  uint64_t stored = 0;
  const auto commits = fixture.coordinator.commits();
  for (const v1::DataFile& file : commits[0].files()) {
    stored += (file.size_bytes() + kIoAlignmentBytes - 1) / kIoAlignmentBytes * kIoAlignmentBytes;
  }
  CHECK(BytesRead(fixture) == stored);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("a trainer that dies in the middle of a load gives its windows back") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  const std::string w = Pattern(14 << 20);  // more than all windows together
  first.SetState({{"w", w}}, {});
  second.SetState({{"w", w}}, {});
  Pending<v1::BeginSaveResponse> saves[] = {first.BeginSave(1, 1), second.BeginSave(1, 1)};
  first.Copy(*saves[0].Get());
  second.Copy(*saves[1].Get());
  REQUIRE(first.Finish(1).ok());
  REQUIRE(second.Finish(1).ok());
  REQUIRE(first.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);

  const v1::BeginLoadRequest wanted = first.LoadRequest(1, {{"w", w.size()}});
  Pending<v1::BeginLoadResponse> begun[] = {first.BeginLoad(wanted), second.BeginLoad(wanted)};
  REQUIRE(begun[0].Get().ok());
  REQUIRE(begun[1].Get().ok());
  REQUIRE(second.Next(begun[1].Get()->load_id()).Get().ok());  // and never gives back
  second.Disconnect();
  auto got = first.Receive(wanted, *begun[0].Get());
  REQUIRE(got.ok());
  CHECK(got->first[0] == w);
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
}

TEST_CASE("a reader loads what is committed and can't save") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0), reader(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  const std::string w = Pattern(100'001);
  trainer.SetState({{"w", w}}, {});
  REQUIRE(trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  REQUIRE(reader.Join("gpt", 1, /*reader=*/true).Get().ok());
  CHECK(reader.Load("w", w.size(), 1).value() == w);
  reader.SetState({{"w", w}}, {});
  CHECK(absl::IsFailedPrecondition(reader.BeginSave(2, 2).Get().status()));
  CHECK(trainer.Save(2, 2)->phase() == v1::SAVE_PHASE_DURABLE);  // it superseded nobody
}

TEST_CASE("a load that another rank's death leaves unplanned fails, naming that rank") {
  NodeFixture fixture;
  TestTrainer first(fixture, 0), second(fixture, 1);
  Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
  REQUIRE(second.Join("gpt", 2).Get().ok());
  REQUIRE(joined.Get().ok());
  Pending<v1::BeginLoadResponse> begun = first.BeginLoad(first.LoadRequest(1, {{"w", 5}}));
  second.Disconnect();
  CHECK(absl::IsAborted(begun.Get().status()));
  CHECK(std::string(begun.Get().status().message()).find("rank 1") != std::string::npos);
}

}  // namespace
}  // namespace ckptd
