#include "storage/file_system/posix_file_system.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/catch.h"
#include "tests/mentions.h"
#include "tests/storage/temporary_directory.h"

namespace ckptd {
namespace {

constexpr uint64_t kBlock = kIoAlignmentBytes;

struct FreeDeleter {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// Aligned memory of whole blocks, each filled with its number.
class Blocks {
 public:
  explicit Blocks(size_t blocks)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kBlock, blocks * kBlock))),
        bytes_(blocks * kBlock) {
    for (size_t i = 0; i < bytes_; ++i) memory_.get()[i] = std::byte(1 + i / kBlock);
  }
  std::span<std::byte> all() { return {memory_.get(), bytes_}; }

 private:
  std::unique_ptr<std::byte[], FreeDeleter> memory_;
  size_t bytes_;
};

CreateOptions Options(bool direct = false, uint64_t reserve_bytes = 0) {
  CreateOptions options;
  options.owner = Self();
  options.direct = direct;
  options.reserve_bytes = reserve_bytes;
  return options;
}

mode_t ModeOf(const std::string& path) {
  struct stat info {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

// Directories of a disk and, where there is one, of tmpfs, which may refuse O_DIRECT.
std::vector<std::string> Places() {
  std::vector<std::string> places = {std::filesystem::temp_directory_path()};
  if (std::filesystem::is_directory("/dev/shm")) places.push_back("/dev/shm");
  return places;
}

// With io_uring and without.
std::unique_ptr<FileSystem> MakeEither() {
  return MakePosixFileSystem({.use_io_uring = GENERATE(true, false)});
}

TEST_CASE("what is written with or without direct I/O is read back with or without it") {
  const auto files = MakeEither();
  for (const std::string& place : Places()) {
    for (const bool direct : {false, true}) {
      TemporaryDirectory directory(place);
      const std::string path = directory / "data";
      Blocks blocks(3);
      auto file = files->Create(path, Options(direct, 3 * kBlock));
      REQUIRE(file.ok());
      // Out of order, and the last block cut.
      REQUIRE((*file)->WriteAt(kBlock, blocks.all().subspan(kBlock)).ok());
      REQUIRE((*file)->WriteAt(0, blocks.all().first(kBlock)).ok());
      REQUIRE((*file)->Truncate(2 * kBlock + 100).ok());
      REQUIRE((*file)->Sync().ok());
      REQUIRE((*file)->Close().ok());

      for (const bool read_direct : {false, true}) {
        auto reader = files->Open(path, read_direct);
        REQUIRE(reader.ok());
        CHECK((*reader)->size_bytes() == 2 * kBlock + 100);
        Blocks got(3);
        std::memset(got.all().data(), 0, 3 * kBlock);
        const size_t wanted = read_direct ? 3 * kBlock : 2 * kBlock + 100;
        REQUIRE((*reader)->ReadAt(0, got.all().first(wanted)).ok());
        CHECK(std::memcmp(got.all().data(), blocks.all().data(), 2 * kBlock + 100) == 0);
      }
    }
  }
}

TEST_CASE("a read behind the end of a file says how much it has") {
  TemporaryDirectory directory;
  const auto files = MakeEither();
  REQUIRE(files->Commit(directory / "a", "hello", CommitMode::kReplace, Self()).ok());
  Blocks blocks(2);
  auto buffered = files->Open(directory / "a", false);
  const absl::Status status = (*buffered)->ReadAt(2, blocks.all().first(4));
  CHECK(absl::IsOutOfRange(status));
  CHECK(Mentions(status, "only 5 bytes"));
  CHECK(absl::IsOutOfRange((*buffered)->ReadAt(~uint64_t{0}, blocks.all().first(4))));
  auto direct = files->Open(directory / "a", true);
  CHECK((*direct)->ReadAt(0, blocks.all().first(kBlock)).ok());
  CHECK(absl::IsOutOfRange((*direct)->ReadAt(0, blocks.all())));
  CHECK(absl::IsOutOfRange((*direct)->ReadAt(kBlock, blocks.all().first(kBlock))));
}

TEST_CASE("a file that was cut after it was opened is an error, not zeros") {
  TemporaryDirectory directory;
  const auto files = MakeEither();
  REQUIRE(files->Commit(directory / "a", "hello", CommitMode::kReplace, Self()).ok());
  auto file = files->Open(directory / "a", false);
  std::filesystem::resize_file(directory / "a", 3);
  Blocks blocks(1);
  CHECK(absl::IsOutOfRange((*file)->ReadAt(0, blocks.all().first(5))));
}

TEST_CASE("direct I/O that is not aligned is refused, on every file system") {
  const auto files = MakeEither();
  for (const std::string& place : Places()) {
    TemporaryDirectory directory(place);
    auto file = files->Create(directory / "data", Options(true));
    REQUIRE(file.ok());
    Blocks blocks(2);
    CHECK(absl::IsInvalidArgument((*file)->WriteAt(1, blocks.all().first(kBlock))));
    CHECK(absl::IsInvalidArgument((*file)->WriteAt(0, blocks.all().first(100))));
    CHECK(absl::IsInvalidArgument((*file)->WriteAt(0, blocks.all().subspan(8, kBlock))));
  }
}

TEST_CASE("space that the disk does not have is refused with needed and free bytes") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  const auto free_bytes = files->FreeBytes(directory.path());
  REQUIRE(free_bytes.ok());
  CHECK(*free_bytes > 0);
  auto file = files->Create(directory / "data", Options(false, *free_bytes + (uint64_t{1} << 40)));
  CHECK(absl::IsResourceExhausted(file.status()));
  CHECK(Mentions(file.status(), "needs "));
  CHECK(Mentions(file.status(), " free"));
  CHECK(files->List(directory.path())->empty());
}

TEST_CASE("reserved space does not change a file's size") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  REQUIRE(files->Create(directory / "data", Options(false, 1 << 20)).ok());
  CHECK(std::filesystem::file_size(directory / "data") == 0);
}

TEST_CASE("files have mode 0640 and directories 0750, whatever the umask") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  const mode_t umask_before = ::umask(0077);
  const absl::Status made = files->CreateDirectories(directory.path(), "job/step-1", Self());
  const auto file = files->Create(directory / "job/step-1/data", Options());
  const absl::Status committed =
      files->Commit(directory / "job/manifest", "x", CommitMode::kFailIfExists, Self());
  ::umask(umask_before);
  REQUIRE(made.ok());
  REQUIRE(file.ok());
  REQUIRE(committed.ok());
  CHECK(ModeOf(directory / "job") == 0750);
  CHECK(ModeOf(directory / "job/step-1") == 0750);
  CHECK(ModeOf(directory / "job/step-1/data") == 0640);
  CHECK(ModeOf(directory / "job/manifest") == 0640);
}

TEST_CASE("files and directories belong to the owner named", "[root]") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  const FileOwner other{12345, 54321};
  REQUIRE(files->CreateDirectories(directory.path(), "job", other).ok());
  REQUIRE(files->Commit(directory / "job/m", "x", CommitMode::kFailIfExists, other).ok());
  for (const std::string& path : {directory / "job", directory / "job/m"}) {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK(info.st_uid == 12345);
    CHECK(info.st_gid == 54321);
  }
}

TEST_CASE("who isn't root can't give files away, and is told", "[not root]") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  CHECK(
      absl::IsPermissionDenied(files->CreateDirectories(directory.path(), "job", {12345, 54321})));
}

TEST_CASE("a commit appears once, whole, and leaves no temporary file") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  const std::string path = directory / "manifest";
  REQUIRE(files->Commit(path, "first", CommitMode::kFailIfExists, Self()).ok());
  const absl::Status second = files->Commit(path, "second", CommitMode::kFailIfExists, Self());
  CHECK(absl::IsAlreadyExists(second));
  CHECK(Mentions(second, path));
  CHECK(*files->ReadWhole(path, 100) == "first");
  REQUIRE(files->Commit(path, "third", CommitMode::kReplace, Self()).ok());
  CHECK(*files->ReadWhole(path, 100) == "third");
  CHECK(files->List(directory.path())->size() == 1);
}

TEST_CASE("of many writers that commit one name, exactly one succeeds") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  std::vector<absl::Status> results(8);
  std::vector<std::thread> writers;
  for (size_t i = 0; i < results.size(); ++i) {
    writers.emplace_back([&, i] {
      results[i] = files->Commit(directory / "manifest", std::to_string(i),
                                 CommitMode::kFailIfExists, Self());
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string winner = *files->ReadWhole(directory / "manifest", 100);
  for (size_t i = 0; i < results.size(); ++i) {
    CHECK(results[i].ok() == (std::to_string(i) == winner));
    CHECK((results[i].ok() || absl::IsAlreadyExists(results[i])));
  }
  CHECK(files->List(directory.path())->size() == 1);
}

TEST_CASE("errors have the codes that the interface promises, and name the path") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  const std::string none = directory / "none";
  CHECK(absl::IsNotFound(files->Open(none, false).status()));
  CHECK(Mentions(files->Open(none, false).status(), none));
  CHECK(absl::IsNotFound(files->ReadWhole(none, 10).status()));
  CHECK(absl::IsNotFound(files->Remove(none)));
  CHECK(absl::IsNotFound(files->List(none).status()));
  CHECK(absl::IsNotFound(files->Create(none + "/a", Options()).status()));
  CHECK(absl::IsNotFound(files->CreateDirectories(none, "a", Self())));
  REQUIRE(files->CreateDirectories(directory.path(), "a/b", Self()).ok());
  CHECK(files->CreateDirectories(directory.path(), "a/b", Self()).ok());
  CHECK(absl::IsFailedPrecondition(files->RemoveDirectory(directory / "a")));
  CHECK(absl::IsFailedPrecondition(files->Open(directory / "a", false).status()));
  REQUIRE(files->Create(directory / "a/f", Options()).ok());
  CHECK(absl::IsAlreadyExists(files->Create(directory / "a/f", Options()).status()));
  CHECK(absl::IsInvalidArgument(files->Create("relative", Options()).status()));
  CHECK(absl::IsInvalidArgument(files->CreateDirectories(directory.path(), "a/../b", Self())));
  CHECK(files->Remove(directory / "a/f").ok());
  CHECK(files->RemoveDirectory(directory / "a/b").ok());
  CHECK(files->SyncDirectory(directory / "a").ok());
}

TEST_CASE("a file above the limit is not read into memory") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  REQUIRE(files->Commit(directory / "a", "hello", CommitMode::kReplace, Self()).ok());
  CHECK(files->ReadWhole(directory / "a", 5).ok());
  CHECK(absl::IsResourceExhausted(files->ReadWhole(directory / "a", 4).status()));
}

TEST_CASE("a listing is sorted and tells files from directories") {
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  REQUIRE(files->CreateDirectories(directory.path(), "b", Self()).ok());
  REQUIRE(files->Commit(directory / "c", "123", CommitMode::kReplace, Self()).ok());
  REQUIRE(files->Commit(directory / "a", "", CommitMode::kReplace, Self()).ok());
  const auto entries = files->List(directory.path());
  REQUIRE(entries.ok());
  REQUIRE(entries->size() == 3);
  CHECK(entries->at(0).name == "a");
  CHECK(entries->at(1).name == "b");
  CHECK(entries->at(1).is_directory);
  CHECK(entries->at(2).size_bytes == 3);
  CHECK_FALSE(entries->at(2).is_directory);
}

// A job's user owns its folders and may swap one for a link to anywhere; the daemon,
// often root, must not write or read there.
TEST_CASE("invariant 7: no symbolic link in a store is followed, at the end or on the way") {
  TemporaryDirectory outside;
  TemporaryDirectory directory;
  const auto files = MakePosixFileSystem();
  REQUIRE(files->Commit(outside / "secret", "secret", CommitMode::kReplace, Self()).ok());
  std::filesystem::create_directory_symlink(outside.path(), directory / "step-1");
  std::filesystem::create_symlink(outside / "secret", directory / "link");

  const absl::Status created = files->Create(directory / "step-1/data", Options()).status();
  CHECK(absl::IsPermissionDenied(created));
  CHECK(Mentions(created, "symbolic link"));
  CHECK(absl::IsPermissionDenied(files->ReadWhole(directory / "step-1/secret", 100).status()));
  CHECK(absl::IsPermissionDenied(files->ReadWhole(directory / "link", 100).status()));
  CHECK(absl::IsPermissionDenied(
      files->Commit(directory / "step-1/m", "x", CommitMode::kReplace, Self())));
  CHECK(absl::IsPermissionDenied(files->Remove(directory / "step-1/secret")));
  CHECK_FALSE(files->CreateDirectories(directory.path(), "step-1/x", Self()).ok());
  CHECK(files->List(outside.path())->size() == 1);
}

TEST_CASE("a pipe in the place of a file is refused without waiting for its writer") {
  TemporaryDirectory directory;
  REQUIRE(::mkfifo((directory / "pipe").c_str(), 0600) == 0);
  CHECK(
      absl::IsFailedPrecondition(MakePosixFileSystem()->Open(directory / "pipe", false).status()));
}

TEST_CASE("a configured directory is resolved through its links once") {
  TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "real");
  std::filesystem::create_directory_symlink(directory / "real", directory / "link");
  CHECK(CanonicalDirectory(directory / "link/.").value() == directory / "real");
  CHECK(absl::IsNotFound(CanonicalDirectory(directory / "none").status()));
  std::ofstream(directory / "file") << "x";
  CHECK(absl::IsFailedPrecondition(CanonicalDirectory(directory / "file").status()));
}

}  // namespace
}  // namespace ckptd
