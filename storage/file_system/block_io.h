// How bytes move between memory and open files: by system calls, or through an
// io_uring. Used by the posix files only, which know what a short transfer means.
#ifndef CKPTD_STORAGE_FILE_SYSTEM_BLOCK_IO_H_
#define CKPTD_STORAGE_FILE_SYSTEM_BLOCK_IO_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace ckptd {

// One read or write of a part of a file.
struct Transfer {
  enum class Kind : uint8_t { kRead, kWrite };
  Kind kind = Kind::kRead;
  int fd = -1;
  uint64_t offset = 0;  // in the file
  std::byte* data = nullptr;
  uint64_t bytes = 0;  // at most transfer_bytes()
  // The outcome: bytes moved, which may be fewer, or -errno.
  int64_t result = 0;
};

// Thread-safe.
class BlockIo {
 public:
  virtual ~BlockIo() = default;
  // Does all of them, in no order, and returns when each has its result.
  virtual void Run(std::span<Transfer> transfers) = 0;
  // Into what a long range should be cut for Run.
  virtual uint64_t transfer_bytes() const = 0;
  // Transfers of memory within `memory` will be many: it may be pinned once for all of
  // them. It must be taken back before it is unmapped, with no transfer of it running.
  // False: it wasn't pinned; such transfers work all the same.
  virtual bool AddMemory(std::span<std::byte> memory) = 0;
  virtual void RemoveMemory(std::span<std::byte> memory) = 0;
};

// One pread or pwrite after the other, on the calling thread.
std::unique_ptr<BlockIo> MakeSystemCallIo();

// Several transfers in flight, also of one caller. UNAVAILABLE where the kernel has no
// io_uring or forbids it (seccomp, kernel.io_uring_disabled), saying which.
absl::StatusOr<std::unique_ptr<BlockIo>> MakeRingIo();

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_BLOCK_IO_H_
