#include "tests/storage/file_system/fault_injecting_file_system.h"

#include <thread>

#include "storage/file_system/posix_file_system.h"
#include "tests/catch.h"
#include "tests/storage/temporary_directory.h"

namespace ckptd {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

struct Fixture {
  TemporaryDirectory directory;
  std::unique_ptr<FileSystem> base = MakePosixFileSystem();
  FaultInjectingFileSystem files{*base};

  std::unique_ptr<WritableFile> Create(const std::string& name) {
    CreateOptions options;
    options.owner = Self();
    auto file = files.Create(directory / name, options);
    REQUIRE(file.ok());
    return *std::move(file);
  }
  bool Exists(const std::string& name) { return base->Open(directory / name, false).ok(); }
};

TEST_CASE_METHOD(Fixture, "a fault fails the call that it names, and no other") {
  files.Inject({.operation = FileOperation::kWriteAt,
                .from_call = 2,
                .status = absl::DataLossError("bad block"),
                .path_part = "data"});
  const auto other = Create("other");
  const auto file = Create("data");
  CHECK(other->WriteAt(0, Bytes("x")).ok());
  CHECK(file->WriteAt(0, Bytes("x")).ok());
  CHECK(absl::IsDataLoss(file->WriteAt(1, Bytes("y"))));
  CHECK(file->WriteAt(1, Bytes("z")).ok());
  CHECK(files.CountCalls(FileOperation::kWriteAt) == 4);
  CHECK(files.records().back().bytes == 1);
}

TEST_CASE_METHOD(Fixture, "a lost answer fails a commit that took effect") {
  files.Inject({.operation = FileOperation::kCommit, .after_effect = true});
  CHECK(absl::IsUnavailable(files.Commit(directory / "m", "x", CommitMode::kFailIfExists, Self())));
  CHECK(Exists("m"));
}

TEST_CASE_METHOD(Fixture, "a full disk takes what fits and refuses the rest") {
  files.LimitSpace(10);
  const auto file = Create("data");
  CHECK(file->WriteAt(0, Bytes("12345678")).ok());
  CHECK(absl::IsResourceExhausted(file->WriteAt(8, Bytes("12345678"))));
  CHECK(absl::IsResourceExhausted(
      files.Commit(directory / "m", "12345678", CommitMode::kReplace, Self())));
  CHECK_FALSE(Exists("m"));
  files.LiftSpaceLimit();
  CHECK(file->WriteAt(8, Bytes("12345678")).ok());
}

TEST_CASE_METHOD(Fixture, "reserved space is taken at once, and comes back with the file's end") {
  files.LimitSpace(10000);
  const CreateOptions options = {.owner = Self(), .reserve_bytes = 8000};
  const auto first = files.Create(directory / "first", options);
  REQUIRE(first.ok());
  CHECK(*files.FreeBytes(directory.path()) == 2000);
  CHECK(absl::IsResourceExhausted(files.Create(directory / "second", options).status()));
  CHECK((*first)->WriteAt(0, Bytes(std::string(9000, 'x'))).ok());
  CHECK(*files.FreeBytes(directory.path()) == 1000);
  CHECK(files.Remove(directory / "first").ok());
  CHECK(*files.FreeBytes(directory.path()) == 10000);
}

TEST_CASE_METHOD(Fixture, "the gate holds writes until it is opened") {
  const auto file = Create("data");
  files.CloseGate();
  absl::Status result = absl::UnknownError("not written yet");
  std::thread writer([&] { result = file->WriteAt(0, Bytes("x")); });
  REQUIRE(files.AwaitBlocked(1));
  CHECK(files.CountCalls(FileOperation::kWriteAt) == 0);
  CHECK(file->Sync().ok());  // only writes are held
  files.OpenGate();
  writer.join();
  CHECK(result.ok());
}

TEST_CASE_METHOD(Fixture, "without power every call fails, also those at the gate") {
  const auto file = Create("data");
  files.CloseGate();
  absl::Status result;
  std::thread writer([&] { result = file->WriteAt(0, Bytes("x")); });
  REQUIRE(files.AwaitBlocked(1));
  REQUIRE(files.PowerOff(1).ok());
  writer.join();
  CHECK(absl::IsUnavailable(result));
  CHECK(absl::IsUnavailable(files.List(directory.path()).status()));
}

// Over many seeds both outcomes must come up, or the simulation tests nothing.
TEST_CASE("a power failure keeps what was synced and may lose what was not") {
  int names_lost = 0;
  int data_lost = 0;
  int removals_undone = 0;
  constexpr int kSeeds = 64;
  for (int seed = 0; seed < kSeeds; ++seed) {
    Fixture f;
    const auto synced = f.Create("synced");
    REQUIRE(synced->WriteAt(0, Bytes("first")).ok());
    REQUIRE(synced->Sync().ok());
    const auto removed = f.Create("removed");
    REQUIRE(f.files.SyncDirectory(f.directory.path()).ok());
    REQUIRE(synced->WriteAt(5, Bytes("second")).ok());
    const auto nameless = f.Create("nameless");
    REQUIRE(nameless->Sync().ok());
    REQUIRE(f.files.Remove(f.directory / "removed").ok());
    REQUIRE(f.files.Commit(f.directory / "m", "x", CommitMode::kFailIfExists, Self()).ok());
    REQUIRE(f.files.PowerOff(seed).ok());

    const std::string content = *f.base->ReadWhole(f.directory / "synced", 100);
    CHECK(content.substr(0, 5) == "first");
    data_lost += content.substr(5) != "second";
    names_lost += !f.Exists("nameless");
    removals_undone += f.Exists("removed");
    CHECK(f.Exists("m"));
  }
  for (const int count : {names_lost, data_lost, removals_undone}) {
    CHECK(count > 0);
    CHECK(count < kSeeds);
  }
}

}  // namespace
}  // namespace ckptd
