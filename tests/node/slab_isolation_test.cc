// What a process that was given a slab can do with it, and see in it: nothing of another job's.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "tests/catch.h"
#include "tests/node/node_fixture.h"
#include "tests/node/pattern.h"

namespace ckptd {
namespace {

// Of an arena of 16 MiB: two of them need the same memory.
constexpr size_t kMostOfTheArena = 12 << 20;

struct Owner {
  Owner(NodeFixture& fixture, const std::string& job, char seed)
      : trainer(fixture, 0), bytes(Pattern(kMostOfTheArena, seed)) {
    REQUIRE(trainer.Join(job, 1).Get().ok());
    trainer.SetState({{"w", bytes}}, {});
  }
  // Its bytes lie in the arena, in this slab.
  uint64_t Snapshot() {
    Pending<v1::BeginSaveResponse> begun = trainer.BeginSave(1, 1);
    REQUIRE(begun.Get().ok());
    trainer.Copy(*begun.Get());
    return begun.Get()->tensors().segments(0).slab_id();
  }
  void Finish() {
    REQUIRE(trainer.Finish(1).ok());
    REQUIRE(trainer.Wait(1, v1::SAVE_PHASE_DURABLE)->phase() == v1::SAVE_PHASE_DURABLE);
  }
  ino_t Inode(uint64_t slab) const {
    struct stat info {};
    REQUIRE(fstat(trainer.Slab(slab).descriptor.get(), &info) == 0);
    return info.st_ino;
  }

  TestTrainer trainer;
  const std::string bytes;
};

TEST_CASE("invariant 7: who mapped a slab before another job got its memory sees nothing of that") {
  NodeFixture fixture;
  Owner first(fixture, "first", 'a');
  const uint64_t slab = first.Snapshot();
  first.Finish();
  const ino_t inode = first.Inode(slab);

  Owner second(fixture, "second", 'b');
  const uint64_t reused = second.Snapshot();
  CHECK(second.Inode(reused) != inode);
  // The memory behind the old mapping was given back: it reads as zeros, and what is written
  // there is nobody else's.
  const MappedSlab& mapped = first.trainer.Slab(slab);
  char* end = mapped.data + mapped.size_bytes;
  CHECK(std::all_of(mapped.data, end, [](char byte) { return byte == 0; }));
  std::fill(mapped.data, end, 'x');
  second.Finish();
  CHECK(second.trainer.Load("w", kMostOfTheArena, 1).value() == second.bytes);
}

TEST_CASE("invariant 7: a trainer can't cut, stretch or seal the slab that it was given") {
  NodeFixture fixture;
  Owner owner(fixture, "gpt", 'a');
  const uint64_t slab = owner.Snapshot();
  const int descriptor = owner.trainer.Slab(slab).descriptor.get();
  CHECK(fcntl(descriptor, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
  for (const off_t size : {off_t{0}, off_t{1} << 40}) {
    CHECK(ftruncate(descriptor, size) == -1);
    CHECK(errno == EPERM);
  }
  for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
    CHECK(fcntl(descriptor, F_ADD_SEALS, seal) == -1);
    CHECK(errno == EPERM);
  }
  owner.Finish();
}

// Whether a slab is mapped in this process. Of a forked child: only system calls.
bool MapsSlab() {
  static char maps[1 << 20];
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  size_t size = 0;
  for (ssize_t got;
       size < sizeof(maps) && (got = read(file, maps + size, sizeof(maps) - size)) > 0;) {
    size += static_cast<size_t>(got);
  }
  close(file);
  return std::string_view(maps, size).find("memfd:ckptd-slab") != std::string_view::npos;
}

TEST_CASE("a process that the daemon forks has no slab mapped") {
  NodeFixture fixture;
  REQUIRE(MapsSlab());
  const pid_t child = fork();
  if (child == 0) _exit(MapsSlab() ? 1 : 42);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 42);
}

}  // namespace
}  // namespace ckptd
