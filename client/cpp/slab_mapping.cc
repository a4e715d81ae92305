#include "client/cpp/slab_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/fork_guard.h"

namespace ckptd {

absl::StatusOr<std::shared_ptr<const SlabMapping>> SlabMapping::Map(int descriptor,
                                                                    uint64_t size_bytes) {
  struct stat file = {};
  if (::fstat(descriptor, &file) != 0) return absl::ErrnoToStatus(errno, "reading a slab's size");
  if (static_cast<uint64_t>(file.st_size) < size_bytes) {
    return absl::DataLossError(
        absl::StrCat("a slab of ", file.st_size, " bytes was announced as ", size_bytes, " bytes"));
  }
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::DataLossError("a slab is not sealed against shrinking");
  }
  void* const data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mapping a slab of ", size_bytes, " bytes"));
  }
  if (::madvise(data, size_bytes, MADV_DONTFORK) != 0) {
    const absl::Status status = absl::ErrnoToStatus(errno, "hiding a slab from forked children");
    ::munmap(data, size_bytes);
    return status;
  }
  return std::shared_ptr<const SlabMapping>(
      new SlabMapping(static_cast<std::byte*>(data), size_bytes));
}

SlabMapping::~SlabMapping() {
  if (InForkedChild()) return;  // MADV_DONTFORK: there may be someone else's mapping here
  ::munmap(data_, size_bytes_);
}

absl::StatusOr<std::span<std::byte>> SlabMapping::Range(uint64_t offset, uint64_t length) const {
  if (offset > size_bytes_ || length > size_bytes_ - offset) {
    return absl::OutOfRangeError(absl::StrCat("bytes ", offset, " to ", offset, "+", length,
                                              " of a slab of ", size_bytes_, " bytes"));
  }
  return std::span<std::byte>(data_ + offset, length);
}

}  // namespace ckptd
