#include "client/ctl/aligned_reader.h"

#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ckptd {
namespace {

constexpr std::align_val_t kAlignment{kIoAlignmentBytes};

}  // namespace

AlignedBuffer::~AlignedBuffer() { ::operator delete(data_, kAlignment); }

std::span<std::byte> AlignedBuffer::Resize(uint64_t bytes) {
  if (bytes > capacity_) {
    ::operator delete(data_, kAlignment);
    data_ = static_cast<std::byte*>(::operator new(bytes, kAlignment));
    capacity_ = bytes;
  }
  return {data_, bytes};
}

absl::StatusOr<std::span<const std::byte>> AlignedReader::Read(uint64_t offset, uint64_t length,
                                                               AlignedBuffer& buffer) const {
  const uint64_t size = file_->size_bytes();
  if (offset > size || length > size - offset) {
    return absl::OutOfRangeError(
        absl::StrCat("bytes ", offset, " to ", offset + length, " of a file that has ", size));
  }
  const uint64_t begin = offset / kIoAlignmentBytes * kIoAlignmentBytes;
  const uint64_t end =
      (offset + length + kIoAlignmentBytes - 1) / kIoAlignmentBytes * kIoAlignmentBytes;
  const std::span<std::byte> window = buffer.Resize(end - begin);
  if (absl::Status status = file_->ReadAt(begin, window); !status.ok()) return status;
  return window.subspan(offset - begin, length);
}

}  // namespace ckptd
