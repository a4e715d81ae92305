#include "daemon/node/slab.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace ckptd {
namespace {

constexpr uint64_t kTouchUnitBytes = uint64_t{64} << 20;
constexpr uint64_t kPageBytes = 4096;

absl::Status SlabError(absl::string_view doing, uint64_t bytes) {
  const int error = errno;
  const std::string message =
      absl::StrCat(doing, " an arena slab of ", bytes, " bytes: ", strerror(error));
  return error == ENOMEM || error == ENOSPC || error == EMFILE
             ? absl::ResourceExhaustedError(message)
             : absl::InternalError(message);
}

// 0, or errno.
int TouchRange(std::byte* data, uint64_t bytes) {
  if (madvise(data, bytes, MADV_POPULATE_WRITE) == 0) return 0;
  if (errno != EINVAL) return errno;
  // A kernel before 5.14: fault page by page.
  for (uint64_t at = 0; at < bytes; at += kPageBytes) {
    reinterpret_cast<volatile std::byte*>(data)[at] = std::byte{0};
  }
  return 0;
}

int TouchAll(std::byte* data, uint64_t bytes, int threads) {
  const uint64_t units = (bytes + kTouchUnitBytes - 1) / kTouchUnitBytes;
  const int workers = static_cast<int>(std::min<uint64_t>(std::max(threads, 1), units));
  std::vector<int> errors(workers, 0);
  auto work = [&](int worker) {
    for (uint64_t unit = worker; unit < units && errors[worker] == 0; unit += workers) {
      const uint64_t begin = unit * kTouchUnitBytes;
      errors[worker] = TouchRange(data + begin, std::min(kTouchUnitBytes, bytes - begin));
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < workers; ++i) helpers.emplace_back(work, i);
  if (workers > 0) work(0);
  for (std::thread& helper : helpers) helper.join();
  auto failed = std::find_if(errors.begin(), errors.end(), [](int error) { return error != 0; });
  return failed == errors.end() ? 0 : *failed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Slab>> Slab::Create(uint64_t id, uint64_t bytes, int touch_threads,
                                                   FileSystem& file_system) {
  UniqueFd descriptor(memfd_create("ckptd-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!descriptor.valid()) return SlabError("creating", bytes);
  if (ftruncate(descriptor.get(), static_cast<off_t>(bytes)) != 0) {
    return SlabError("sizing", bytes);
  }
  // SEAL too, or a trainer could add FUTURE_WRITE and lock us out of our own memory.
  if (fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SlabError("sealing", bytes);
  }
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  if (address == MAP_FAILED) return SlabError("mapping", bytes);
  std::unique_ptr<Slab> slab(
      new Slab(id, std::move(descriptor), static_cast<std::byte*>(address), bytes, file_system));
  if (madvise(address, bytes, MADV_DONTFORK) != 0) return SlabError("setting DONTFORK on", bytes);
  if (int error = TouchAll(slab->data(), bytes, touch_threads); error != 0) {
    errno = error;
    return SlabError("touching", bytes);
  }
  slab->is_known_to_storage_ = file_system.AddMemory({slab->data_, bytes});
  return slab;
}

Slab::~Slab() {
  if (is_known_to_storage_) file_system_.RemoveMemory({data_, size_bytes_});
  // Best effort: without it the pages would live as long as the last trainer's mapping.
  (void)fallocate(descriptor_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  static_cast<off_t>(size_bytes_));
  munmap(data_, size_bytes_);
}

}  // namespace ckptd
