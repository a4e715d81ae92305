// Images that are kept in the arena, and loads from them.
#include "daemon/node/kept_images.h"

#include <functional>
#include <string>
#include <vector>

#include "daemon/node/extent_allocator.h"
#include "storage/file_system/posix_file_system.h"
#include "storage/format/checksum.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

constexpr FixtureOptions kKeeps = {.keep_images = true};

// Two ranks of one job, each with a tensor of its own and so with a file of its own.
struct TwoRanks {
  explicit TwoRanks(NodeFixture& fixture) : first(fixture, 0), second(fixture, 1) {
    Pending<v1::JoinResponse> joined = first.Join("gpt", 2);
    REQUIRE(second.Join("gpt", 2).Get().ok());
    REQUIRE(joined.Get().ok());
  }

  // Answers with the first rank's leases.
  v1::BeginSaveResponse Save(const std::string& a, const std::string& b, uint64_t number = 1) {
    first.SetState({{"a", a}}, {{"step", "7"}});
    second.SetState({{"b", b}}, {{"step", "7"}});
    Pending<v1::BeginSaveResponse> saves[] = {first.BeginSave(number, number),
                                              second.BeginSave(number, number)};
    for (Pending<v1::BeginSaveResponse>& save : saves) REQUIRE(save.Get().ok());
    first.Copy(*saves[0].Get());
    second.Copy(*saves[1].Get());
    REQUIRE(first.Finish(number).ok());
    REQUIRE(second.Finish(number).ok());
    REQUIRE(first.Wait(number, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
    return *saves[0].Get();
  }

  // Both tensors and the value, by the first rank; the second wants nothing.
  std::vector<std::string> Load(uint64_t a_bytes, uint64_t b_bytes) {
    const v1::BeginLoadRequest wanted =
        first.LoadRequest(1, {{"a", a_bytes}, {"b", b_bytes}}, {"step"});
    const v1::BeginLoadRequest nothing = second.LoadRequest(1, {});
    Pending<v1::BeginLoadResponse> begun = first.BeginLoad(wanted);
    Pending<v1::BeginLoadResponse> other = second.BeginLoad(nothing);
    REQUIRE(begun.Get().ok());
    REQUIRE(other.Get().ok());
    auto got = first.Receive(wanted, *begun.Get());
    REQUIRE(got.ok());
    REQUIRE(second.Receive(nothing, *other.Get()).ok());
    got->first.push_back(got->second.at(0));
    return got->first;
  }

  TestTrainer first, second;
};

TEST_CASE(
    "invariant 3: a load after a save takes verified bytes from the arena, none from storage") {
  NodeFixture fixture(kKeeps);
  TestTrainer trainer(fixture, 0);
  REQUIRE(trainer.Join("gpt", 1).Get().ok());
  // Slabs have 4 MiB: the image lies in two of them.
  const std::string state = Pattern(7'654'321);
  trainer.SetState({{"w", state}}, {});
  REQUIRE(trainer.Save(1, 1)->phase() == v1::SAVE_PHASE_DURABLE);
  CHECK(fixture.node->Status().arena_kept_bytes() > state.size());
  CHECK(fixture.node->Status().arena_used_bytes() == 0);
  CHECK((*trainer.Load("w", state.size(), 1) == state));
  CHECK(fixture.files.CountCalls(FileOperation::kOpen) == 0);
  CHECK(fixture.probe.bytes_from_arena() == state.size());
  // And again: what was loaded is kept on.
  CHECK((*trainer.Load("w", state.size(), 2) == state));
  CHECK(fixture.files.CountCalls(FileOperation::kOpen) == 0);
}

TEST_CASE("invariant 3: a copy in the arena that was changed after the save is not believed") {
  // With room for reads from storage, so that nothing is given up for them.
  NodeFixture fixture({.arena_bytes = uint64_t{32} << 20, .keep_images = true});
  TwoRanks ranks(fixture);
  const std::string a = Pattern(4 << 20), b = Pattern(5 << 20, 1);
  const v1::BeginSaveResponse saved = ranks.Save(a, b);
  // Rank 0 writes over the last byte of its tensor's last page.
  const v1::Segment& last = *saved.tensors().segments().rbegin();
  char* const bytes = ranks.first.Map(last.slab_id()) + last.slab_offset();
  bytes[last.length_bytes() - kExtentAlignmentBytes] ^= 1;
  CHECK((ranks.Load(a.size(), b.size()) == std::vector<std::string>{a, b, "7"}));
  CHECK_THAT(fixture.probe.warnings(), Contains("was changed after it was saved"));
  CHECK(fixture.probe.changed_images() == 1);
  CHECK(fixture.probe.mismatches() == 0);  // storage is well
  CHECK(fixture.probe.bytes_from_storage() >= kChunkBytes);
  CHECK(fixture.probe.bytes_from_arena() >= b.size());
}

TEST_CASE("what is kept gives way to who needs the room, and what is left still serves loads") {
  NodeFixture fixture(kKeeps);
  const std::string a = Pattern(4 << 20), b = Pattern(4 << 20, 1);
  TwoRanks ranks(fixture);
  ranks.Save(a, b);
  const uint64_t kept = fixture.node->Status().arena_kept_bytes();
  CHECK(kept > a.size() + b.size());
  // Another job needs slabs of its own.
  TestTrainer other(fixture, 0);
  REQUIRE(other.Join("other", 1).Get().ok());
  other.SetState({{"w", Pattern(5 << 20)}}, {});
  REQUIRE(other.BeginSave(1, 1).Get().ok());
  const uint64_t left = fixture.node->Status().arena_kept_bytes();
  CHECK(left < kept);
  other.Disconnect();
  fixture.probe.AwaitArenaEmpty();
  CHECK((ranks.Load(a.size(), b.size()) == std::vector<std::string>{a, b, "7"}));
  CHECK(fixture.probe.bytes_from_storage() > 0);
  CHECK((fixture.probe.bytes_from_arena() > 0) == (left > 0));
}

TEST_CASE("saves go on beside a load from the arena, which keeps only what it has been handed") {
  NodeFixture fixture(kKeeps);
  TwoRanks ranks(fixture);
  // Of the arena's 16 MiB, each save takes a little more than 10.
  const std::string a = Pattern(5 << 20), b = Pattern(5 << 20, 1);
  ranks.Save(a, b);
  TestTrainer reader(fixture, 0);
  REQUIRE(reader.Join("gpt", 1, /*reader=*/true).Get().ok());
  const v1::BeginLoadRequest wanted = reader.LoadRequest(1, {{"a", a.size()}, {"b", b.size()}});
  Pending<v1::BeginLoadResponse> begun = reader.BeginLoad(wanted);
  REQUIRE(begun.Get().ok());
  // Two reads at most have windows out at a time: those of one file.
  Pending<v1::NextWindowsResponse> taken = reader.Next(begun.Get()->load_id());
  REQUIRE(taken.Get().ok());
  REQUIRE(taken.Get()->windows_size() > 0);
  // The other file gives way to the first of these saves; the second takes its memory back.
  ranks.Save(Pattern(5 << 20, 2), Pattern(5 << 20, 3), 2);
  ranks.Save(Pattern(5 << 20, 4), Pattern(5 << 20, 5), 3);
  auto got = reader.Receive(wanted, *begun.Get(), *taken.Get());
  REQUIRE(got.ok());
  CHECK((got->first == std::vector<std::string>{a, b}));
  CHECK(fixture.probe.bytes_from_arena() == a.size());
  CHECK(fixture.probe.bytes_from_storage() >= b.size());
  CHECK(fixture.probe.warnings().empty());
}

TEST_CASE("files of a save that failed are not kept") {
  NodeFixture fixture(kKeeps);
  TwoRanks ranks(fixture);
  fixture.files.Inject({.operation = FileOperation::kSync, .from_call = 2});
  ranks.first.SetState({{"a", Pattern(1 << 20)}}, {});
  ranks.second.SetState({{"b", Pattern(2 << 20)}}, {});
  Pending<v1::BeginSaveResponse> saves[] = {ranks.first.BeginSave(1, 1),
                                            ranks.second.BeginSave(1, 1)};
  ranks.first.Copy(*saves[0].Get());
  ranks.second.Copy(*saves[1].Get());
  REQUIRE(ranks.first.Finish(1).ok());
  (void)ranks.second.Finish(1);
  CHECK(ranks.first.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_FAILED);
  fixture.node->Stop();
  CHECK(fixture.node->Status().arena_kept_bytes() == 0);
}

class OnIdleProbe : public NodeProbe {
 public:
  void ArenaUsed(uint64_t, uint64_t kept_bytes, uint64_t) override {
    if (kept_bytes > 0 && on_idle) on_idle();
  }
  std::function<void()> on_idle;  // called under the arena's lock
};

struct ArenaOfFourPages {
  ArenaOfFourPages() : files(MakePosixFileSystem()), alarms(clock) {
    constexpr uint64_t kBytes = 4 * kExtentAlignmentBytes;
    arena =
        *Arena::Create({.arena_bytes = kBytes, .slab_bytes = kBytes}, *files, clock, alarms, probe);
    arena->SetReclaimer([this] { return kept.GiveUpOne(); });
  }
  ~ArenaOfFourPages() { arena->Stop(); }

  Pending<std::vector<ArenaLeasePtr>> Ask(uint64_t pages) {
    Pending<std::vector<ArenaLeasePtr>> pending;
    arena->Acquire(arena->Open("gpt", "a test"), {{.bytes = pages * kExtentAlignmentBytes}},
                   absl::InfiniteFuture(), pending.done());
    return pending;
  }
  ArenaLeasePtr Lease(uint64_t pages) {
    Pending<std::vector<ArenaLeasePtr>> pending = Ask(pages);
    return std::move(pending.Get()->at(0));
  }

  std::unique_ptr<FileSystem> files;
  ManualClock clock;
  ManualAlarms alarms;
  OnIdleProbe probe;
  std::unique_ptr<Arena> arena;
  KeptImages kept;
};

TEST_CASE("who waits for memory gets that of an image that is kept only then") {
  ArenaOfFourPages here;
  const KeptName name = {"main", "gpt", "data-1"};
  // The arena is woken by memory that becomes idle. It looks once for something to give up,
  // and slept for ever where the image was entered only after that. Looked at while nobody
  // waits, since the image may be given up as soon as it is entered.
  bool was_entered = false;
  here.probe.on_idle = [&, first = true]() mutable {
    if (std::exchange(first, false)) was_entered = here.kept.Find(name) != nullptr;
  };
  here.kept.Keep(name, here.Lease(4));
  REQUIRE(was_entered);
  ArenaLeasePtr image = here.Lease(4);
  CHECK(here.kept.Find(name) == nullptr);

  Pending<std::vector<ArenaLeasePtr>> waits = here.Ask(1);
  here.kept.Keep(name, std::move(image));
  CHECK(waits.Get().ok());
  CHECK(here.kept.Find(name) == nullptr);
}

TEST_CASE("the oldest image is given up first, but for those that somebody reads from") {
  ArenaOfFourPages here;
  const auto name = [](int number) {
    return KeptName{"main", "gpt", "data-" + std::to_string(number)};
  };
  for (int number : {3, 1, 4, 2}) here.kept.Keep(name(number), here.Lease(1));
  here.kept.Drop(name(1));
  ArenaLeasePtr reads = here.kept.Find(name(3));
  REQUIRE(reads != nullptr);
  CHECK(here.kept.GiveUpOne());
  CHECK(here.kept.Find(name(4)) == nullptr);
  CHECK(here.kept.Find(name(2)) != nullptr);
  CHECK(here.kept.GiveUpOne());
  CHECK(here.kept.Find(name(2)) == nullptr);
  CHECK(here.kept.Find(name(3)) == reads);
  CHECK(here.kept.GiveUpOne());
  CHECK(here.arena->idle_bytes() == reads->size_bytes());  // until it was read
  CHECK_FALSE(here.kept.GiveUpOne());
  reads.reset();
  CHECK(here.arena->idle_bytes() == 0);
}

}  // namespace
}  // namespace ckptd
