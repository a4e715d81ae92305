// Any byte range of a file that was opened for direct I/O, which only takes
// aligned ones.
#ifndef CKPTD_CLIENT_CTL_ALIGNED_READER_H_
#define CKPTD_CLIENT_CTL_ALIGNED_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// Memory aligned for direct I/O that grows as needed. One thread.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  // The old content is lost.
  std::span<std::byte> Resize(uint64_t bytes);

 private:
  std::byte* data_ = nullptr;
  uint64_t capacity_ = 0;
};

// Thread-safe, with a buffer per thread.
class AlignedReader {
 public:
  explicit AlignedReader(std::unique_ptr<ReadableFile> file) : file_(std::move(file)) {}

  // The bytes lie in `buffer` until its next use. OUT_OF_RANGE beyond the file's end.
  absl::StatusOr<std::span<const std::byte>> Read(uint64_t offset, uint64_t length,
                                                  AlignedBuffer& buffer) const;

 private:
  const std::unique_ptr<ReadableFile> file_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_ALIGNED_READER_H_
