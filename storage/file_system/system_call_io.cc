#include <unistd.h>

#include <cerrno>

#include "storage/file_system/block_io.h"

namespace ckptd {
namespace {

int64_t RunOne(const Transfer& transfer) {
  const off_t offset = static_cast<off_t>(transfer.offset);
  const ssize_t moved = transfer.kind == Transfer::Kind::kWrite
                            ? ::pwrite(transfer.fd, transfer.data, transfer.bytes, offset)
                            : ::pread(transfer.fd, transfer.data, transfer.bytes, offset);
  return moved < 0 ? -errno : moved;
}

class SystemCallIo : public BlockIo {
 public:
  void Run(std::span<Transfer> transfers) override {
    for (Transfer& transfer : transfers) transfer.result = RunOne(transfer);
  }
  // Linux moves at most 2 GiB - 4 KiB in one call; whole MiB keep direct I/O aligned.
  uint64_t transfer_bytes() const override { return uint64_t{1} << 30; }
  bool AddMemory(std::span<std::byte>) override { return false; }
  void RemoveMemory(std::span<std::byte>) override {}
};

}  // namespace

std::unique_ptr<BlockIo> MakeSystemCallIo() { return std::make_unique<SystemCallIo>(); }

}  // namespace ckptd
