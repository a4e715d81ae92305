// How data files are opened, written window by window, and ended.
#include "daemon/node/persist.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/file_system/posix_file_system.h"
#include "storage/format/checksum.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

constexpr uint64_t kWindowBytes = 4096;

DataFileLayoutPtr LayOutFile(std::vector<DataFilePiece> pieces) {
  return std::make_shared<const DataFileLayout>(*DataFileLayout::Create(std::move(pieces), {}));
}

DataFilePiece PieceOfBytes(const std::string& key, uint64_t bytes) {
  return {.key = key, .data_type = DataType::kU8, .lengths = {static_cast<int64_t>(bytes)}};
}

uint32_t SumOf(std::string_view bytes) {
  return Crc32c({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

// One thread: what is queued runs in order.
struct OneThread {
  OneThread() {
    arena = *Arena::Create({.arena_bytes = 1 << 20, .slab_bytes = 1 << 20}, files, clock, alarms,
                           probe);
    persister = std::make_unique<Persister>(files, probe, /*threads=*/1, /*direct_io=*/false);
  }

  ArenaLeasePtr Lease(uint64_t bytes, absl::string_view content) {
    Pending<std::vector<ArenaLeasePtr>> leases;
    arena->Acquire(arena->Open("gpt", "test"), {{.bytes = bytes}}, absl::InfiniteFuture(),
                   leases.done());
    REQUIRE(leases.Get().ok());
    ArenaLeasePtr lease = std::move(leases.Get()->front());
    lease->Write(0, content);
    return lease;
  }

  FileToPersist File(const std::string& name, DataFileLayoutPtr layout) const {
    return {.store_path = folder.path(),
            .job = "gpt",
            .step = 1,
            .file_name = name,
            .owner = {.user_id = geteuid(), .group_id = getegid()},
            .layout = std::move(layout),
            .progress = progress};
  }

  Pending<PersistedFile> WriteSmall() {
    FileToPersist file =
        File(absl::StrCat("small-", ++small_files), LayOutFile({PieceOfBytes("s", 1)}));
    file.progress = std::make_shared<PersistProgress>();
    Pending<PersistedFile> written;
    persister->Open(std::move(file), written.done())->Add(Lease(2 * kWindowBytes, ""));
    return written;
  }

  // What is queued has run, and what that has queued.
  void Settle() {
    for (int i = 0; i < 2; ++i) REQUIRE(WriteSmall().Get().ok());
  }

  std::string Path(const std::string& name) const { return folder / "gpt/step-1/" + name; }
  bool Exists(const std::string& name) const { return access(Path(name).c_str(), F_OK) == 0; }

  TemporaryFolder folder;
  std::unique_ptr<FileSystem> posix = MakePosixFileSystem({.use_io_uring = false});
  FaultInjectingFileSystem files{*posix};
  ManualClock clock;
  ManualAlarms alarms{clock};
  NodeProbe probe;
  std::unique_ptr<Arena> arena;
  const std::shared_ptr<PersistProgress> progress = std::make_shared<PersistProgress>();
  int small_files = 0;
  std::unique_ptr<Persister> persister;  // its files hold the arena's memory
};

TEST_CASE("a file of very many windows needs no deep stack and lets other files come between") {
  constexpr uint64_t kWindows = 10'000;
  OneThread fixture;
  const uint64_t tensor_bytes = (kWindows - 1) * kWindowBytes - 5;
  const DataFileLayoutPtr layout = LayOutFile({PieceOfBytes("w", tensor_bytes)});
  REQUIRE(layout->header_bytes() == kWindowBytes);
  const std::string page = Pattern(kWindowBytes);
  Pending<PersistedFile> large;
  fixture.files.CloseGate(FileOperation::kCreate);
  auto windows = fixture.persister->Open(fixture.File("large", layout), large.done());
  windows->Add(fixture.Lease(kWindowBytes, ""));
  const ArenaLeasePtr same = fixture.Lease(kWindowBytes, page);
  for (uint64_t i = 1; i < kWindows; ++i) windows->Add(same);
  REQUIRE(fixture.files.AwaitBlocked(1));

  bool large_was_first = true;
  Pending<PersistedFile> written;
  auto note_order = [&, done = written.done()](auto result) mutable {
    large_was_first = large.ready();
    done(std::move(result));
  };
  fixture.persister
      ->Open(fixture.File("other", LayOutFile({PieceOfBytes("s", 1)})), std::move(note_order))
      ->Add(fixture.Lease(2 * kWindowBytes, ""));
  fixture.files.OpenGate();
  CHECK(written.Get().ok());
  CHECK_FALSE(large_was_first);

  REQUIRE(large.Get().ok());
  std::string tensor;
  for (uint64_t i = 1; i < kWindows; ++i) tensor += page;
  tensor.resize(tensor_bytes);
  CHECK((ReadAll(fixture.Path("large")) == layout->header() + tensor));
  const v1::Piece& piece = large.Get()->pieces.at(0);
  REQUIRE(piece.chunk_crc32c_size() == (tensor_bytes + kChunkBytes - 1) / kChunkBytes);
  bool sums_match = true;
  for (int i = 0; i < piece.chunk_crc32c_size(); ++i) {
    sums_match &= piece.chunk_crc32c(i) ==
                  SumOf(std::string_view(tensor).substr(i * kChunkBytes, kChunkBytes));
  }
  CHECK(sums_match);
}

TEST_CASE("a header longer than a window is whole in the file") {
  OneThread fixture;
  std::vector<DataFilePiece> pieces;
  for (int i = 0; i < 200; ++i) {
    pieces.push_back(PieceOfBytes(absl::StrCat("layer.", i), 100 + i));
    if (i % 3 == 0) pieces.back().data_type = DataType::kF32;
  }
  const DataFileLayoutPtr layout = LayOutFile(std::move(pieces));
  const std::string& header = layout->header();
  REQUIRE(header.size() > 2 * kWindowBytes);
  const std::string data = Pattern(layout->file_bytes() - header.size());
  const std::string unwritten = std::string(header.size(), 'x') + data;
  Pending<PersistedFile> done;
  auto windows = fixture.persister->Open(fixture.File("f", layout), done.done());
  for (uint64_t at = 0; at < unwritten.size(); at += kWindowBytes) {
    windows->Add(fixture.Lease(kWindowBytes, unwritten.substr(at, kWindowBytes)));
  }
  REQUIRE(done.Get().ok());
  const std::string file = ReadAll(fixture.Path("f"));
  CHECK((file == header + data));
  CHECK(done.Get()->file.header_crc32c() == SumOf(header));
  for (const v1::Piece& piece : done.Get()->pieces) {
    const std::string_view bytes =
        std::string_view(file).substr(piece.file_offset(), piece.size_bytes());
    REQUIRE(piece.chunk_crc32c_size() == 1);
    CHECK(piece.chunk_crc32c(0) == SumOf(bytes));
  }
}

TEST_CASE("invariant 4: a window that comes after the end of its file is given back at once") {
  OneThread fixture;
  Pending<PersistedFile> done;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> held_by_done = held;
  auto windows = fixture.persister->Open(
      fixture.File("f", LayOutFile({PieceOfBytes("w", 2 * kWindowBytes)})),
      [held = std::move(held), done = done.done()](auto result) mutable { done(result); });
  const bool fails = GENERATE(true, false);
  if (fails) fixture.files.Inject({.operation = FileOperation::kWriteAt});
  for (int i = 0; i < (fails ? 1 : 3); ++i) windows->Add(fixture.Lease(kWindowBytes, ""));
  CHECK(done.Get().ok() != fails);
  windows->Add(fixture.Lease(kWindowBytes, ""));
  CHECK(fixture.arena->used_bytes() == 0);
  fixture.persister->Stop();
  CHECK(held_by_done.expired());
}

TEST_CASE("invariant 2: a file in windows that fails at any step is removed") {
  OneThread fixture;
  const FileOperation step =
      GENERATE(FileOperation::kCreate, FileOperation::kWriteAt, FileOperation::kTruncate,
               FileOperation::kSync, FileOperation::kClose, FileOperation::kSyncDirectory);
  INFO(FileOperationName(step));
  fixture.files.Inject({.operation = step});
  Pending<PersistedFile> done;
  auto windows =
      fixture.persister->Open(fixture.File("f", LayOutFile({PieceOfBytes("w", 1)})), done.done());
  for (int i = 0; i < 2; ++i) windows->Add(fixture.Lease(kWindowBytes, ""));
  CHECK(absl::IsUnavailable(done.Get().status()));
  CHECK_FALSE(fixture.Exists("f"));
  CHECK(fixture.arena->used_bytes() == 0);
}

// Persisting is paused; of one attempt a file waits for its second window, and another one,
// whose first window is there, was not begun.
struct TwoUnfinished {
  TwoUnfinished() {
    const DataFileLayoutPtr layout = LayOutFile({PieceOfBytes("w", 5 * kWindowBytes)});
    auto note_thread = [this, done = waits.done()](auto result) mutable {
      waits_ended_on = std::this_thread::get_id();
      done(std::move(result));
    };
    waiting = fixture.persister->Open(fixture.File("waits", layout), std::move(note_thread));
    fixture.Settle();
    waiting->Add(fixture.Lease(kWindowBytes, ""));
    fixture.Settle();
    REQUIRE(fixture.Exists("waits"));
    fixture.persister->SetPaused(true);
    parked = fixture.persister->Open(fixture.File("parked", layout), parks.done());
    parked->Add(fixture.Lease(kWindowBytes, ""));
  }

  void CheckBothEndedWith(absl::StatusCode code) {
    REQUIRE((waits.ready() && parks.ready()));
    CHECK(waits.Get().status().code() == code);
    CHECK(parks.Get().status().code() == code);
    CHECK_FALSE(fixture.Exists("waits"));
    CHECK_FALSE(fixture.Exists("parked"));
    CHECK(fixture.arena->used_bytes() == 0);
  }

  OneThread fixture;
  Pending<PersistedFile> waits, parks;
  std::thread::id waits_ended_on;
  std::shared_ptr<OpenFile> waiting, parked;
};

TEST_CASE("a pause holds a file that was opened before it and has no window yet") {
  OneThread fixture;
  Pending<PersistedFile> done;
  auto file = fixture.persister->Open(
      fixture.File("f", LayOutFile({PieceOfBytes("w", kWindowBytes)})), done.done());
  fixture.Settle();
  REQUIRE(fixture.Exists("f"));
  const int written = fixture.files.CountCalls(FileOperation::kWriteAt);
  fixture.persister->SetPaused(true);
  for (int i = 0; i < 2; ++i) file->Add(fixture.Lease(kWindowBytes, ""));
  // What was submitted before this has run.
  fixture.files.CloseGate(FileOperation::kRemove);
  fixture.persister->Remove(fixture.folder.path(), "gpt", {"step-1/none"});
  REQUIRE(fixture.files.AwaitBlocked(1));
  CHECK(fixture.files.CountCalls(FileOperation::kWriteAt) == written);
  fixture.files.OpenGate();
  fixture.persister->SetPaused(false);
  CHECK(done.Get().ok());
}

TEST_CASE("an attempt given up while persisting is paused ends with all its files") {
  TwoUnfinished files;
  files.fixture.persister->Abandon(files.fixture.progress);
  // A file that comes too late is not kept for later either.
  Pending<PersistedFile> late;
  files.fixture.persister
      ->Open(files.fixture.File("late", LayOutFile({PieceOfBytes("w", 1)})), late.done())
      ->Add(files.fixture.Lease(2 * kWindowBytes, ""));
  files.fixture.persister->Stop();
  files.CheckBothEndedWith(absl::StatusCode::kAborted);
  CHECK(absl::IsAborted(late.Get().status()));
  // Removing a file may take long, and who gives up must not wait for it.
  CHECK(files.waits_ended_on != std::this_thread::get_id());
}

TEST_CASE("when persisting stops, files without a window and files not begun end") {
  TwoUnfinished files;
  files.fixture.persister->Stop();
  files.CheckBothEndedWith(absl::StatusCode::kUnavailable);
  // The last window may come all the same.
  files.waiting->Add(files.fixture.Lease(kWindowBytes, ""));
  CHECK(files.fixture.arena->used_bytes() == 0);
}

}  // namespace
}  // namespace ckptd
