// What both ways of moving bytes promise, and what only the ring has.
#include "storage/file_system/block_io.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "tests/storage/temporary_directory.h"

namespace ckptd {
namespace {

constexpr uint64_t kPiece = 64 << 10;

std::unique_ptr<BlockIo> Ring() {
  absl::StatusOr<std::unique_ptr<BlockIo>> ring = MakeRingIo();
  INFO(ring.status().ToString());
  REQUIRE(ring.ok());
  return *std::move(ring);
}

std::unique_ptr<BlockIo> Either() { return GENERATE(true, false) ? Ring() : MakeSystemCallIo(); }

// Shared pages of a memfd, as the arena's are.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes) : bytes_(bytes), fd_(memfd_create("block_io_test", 0)) {
    REQUIRE(ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
    void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    REQUIRE(mapped != MAP_FAILED);
    data_ = static_cast<std::byte*>(mapped);
  }
  ~SharedMemory() {
    munmap(data_, bytes_);
    close(fd_);
  }
  std::span<std::byte> all() { return {data_, bytes_}; }

 private:
  const size_t bytes_;
  const int fd_;
  std::byte* data_ = nullptr;
};

class File {
 public:
  explicit File(const std::string& path) : fd_(open(path.c_str(), O_RDWR | O_CREAT, 0600)) {
    REQUIRE(fd_ >= 0);
  }
  ~File() { close(fd_); }
  int fd() const { return fd_; }

 private:
  const int fd_;
};

std::vector<Transfer> Pieces(Transfer::Kind kind, int fd, std::span<std::byte> memory,
                             uint64_t file_offset) {
  std::vector<Transfer> transfers;
  for (uint64_t at = 0; at < memory.size(); at += kPiece) {
    transfers.push_back({.kind = kind,
                         .fd = fd,
                         .offset = file_offset + at,
                         .data = memory.data() + at,
                         .bytes = kPiece});
  }
  return transfers;
}

bool AllWhole(const std::vector<Transfer>& transfers) {
  for (const Transfer& transfer : transfers) {
    if (transfer.result != static_cast<int64_t>(transfer.bytes)) return false;
  }
  return true;
}

TEST_CASE("many threads' transfers, more than are in flight at once, all arrive in their place") {
  constexpr int kThreads = 4;
  constexpr uint64_t kBytes = 200 * kPiece;  // of each thread
  TemporaryDirectory directory;
  const File file(directory / "data");
  const std::unique_ptr<BlockIo> io = Either();
  SharedMemory memory(kThreads * kBytes), got(kThreads * kBytes);
  const bool added = GENERATE(true, false);
  if (added) io->AddMemory(memory.all());
  bool whole[kThreads] = {};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const std::span<std::byte> mine = memory.all().subspan(t * kBytes, kBytes);
      for (size_t i = 0; i < mine.size(); ++i)
        mine[i] = std::byte((i / 4099 + uint64_t{31} * t) % 251);
      std::vector<Transfer> writes = Pieces(Transfer::Kind::kWrite, file.fd(), mine, t * kBytes);
      io->Run(writes);
      std::vector<Transfer> reads = Pieces(Transfer::Kind::kRead, file.fd(),
                                           got.all().subspan(t * kBytes, kBytes), t * kBytes);
      io->Run(reads);
      whole[t] = AllWhole(writes) && AllWhole(reads);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (bool each : whole) CHECK(each);
  CHECK(std::memcmp(memory.all().data(), got.all().data(), memory.all().size()) == 0);
  if (added) io->RemoveMemory(memory.all());
}

TEST_CASE("each transfer has its own outcome") {
  TemporaryDirectory directory;
  const File file(directory / "data");
  const std::unique_ptr<BlockIo> io = Either();
  SharedMemory memory(3 * kPiece);
  std::vector<Transfer> transfers =
      Pieces(Transfer::Kind::kWrite, file.fd(), memory.all().first(2 * kPiece), 0);
  transfers[1].fd = -1;
  io->Run(transfers);
  CHECK(transfers[0].result == kPiece);
  CHECK(transfers[1].result == -EBADF);
  std::vector<Transfer> reads = Pieces(Transfer::Kind::kRead, file.fd(), memory.all(), kPiece / 2);
  io->Run(reads);
  CHECK(reads[0].result == kPiece / 2);  // the file ends there
  CHECK(reads[1].result == 0);
  std::vector<Transfer> none;
  io->Run(none);
}

TEST_CASE("memory comes and goes more often than the ring has places for it") {
  const std::unique_ptr<BlockIo> ring = Ring();
  SharedMemory memory(kPiece);
  for (int i = 0; i < 3000; ++i) {
    REQUIRE(ring->AddMemory(memory.all()));
    ring->RemoveMemory(memory.all());
  }
  ring->RemoveMemory(memory.all());  // not there: nothing happens
}

TEST_CASE("memory that is only partly added is transferred all the same") {
  TemporaryDirectory directory;
  const File file(directory / "data");
  const std::unique_ptr<BlockIo> ring = Ring();
  SharedMemory memory(2 * kPiece);
  REQUIRE(ring->AddMemory(memory.all().first(kPiece)));
  Transfer transfer = {.kind = Transfer::Kind::kWrite,
                       .fd = file.fd(),
                       .data = memory.all().data() + kPiece / 2,
                       .bytes = kPiece};
  ring->Run({&transfer, 1});
  CHECK(transfer.result == kPiece);
  ring->RemoveMemory(memory.all().first(kPiece));
}

TEST_CASE("the system calls pin no memory") {
  SharedMemory memory(kPiece);
  CHECK_FALSE(MakeSystemCallIo()->AddMemory(memory.all()));
}

}  // namespace
}  // namespace ckptd
