#include "storage/file_system/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "storage/file_system/posix_error.h"

namespace ckptd {
namespace {

bool IsAligned(uint64_t value) { return value % kIoAlignmentBytes == 0; }

absl::Status CheckAlignment(uint64_t offset, const void* data, uint64_t size,
                            const std::string& path) {
  if (IsAligned(offset) && IsAligned(size) && IsAligned(reinterpret_cast<uintptr_t>(data))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("direct I/O of ", size, " bytes at offset ", offset, " of ", path,
                   ": offset, size and address must be multiples of ", kIoAlignmentBytes));
}

// True if the file system took O_DIRECT for the open file.
bool TryDirect(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
}

// What a short direct read or write may go on from.
uint64_t Progress(int64_t moved, bool direct) {
  const uint64_t bytes = static_cast<uint64_t>(moved);
  return direct ? bytes - bytes % kIoAlignmentBytes : bytes;
}

std::vector<Transfer> Cut(Transfer::Kind kind, int fd, uint64_t offset, std::byte* data,
                          uint64_t bytes, uint64_t transfer_bytes) {
  std::vector<Transfer> transfers;
  for (uint64_t at = 0; at < bytes; at += transfer_bytes) {
    transfers.push_back({.kind = kind,
                         .fd = fd,
                         .offset = offset + at,
                         .data = data + at,
                         .bytes = std::min(transfer_bytes, bytes - at)});
  }
  return transfers;
}

// Runs the transfers, and what short ones left, until all is moved. `needed` says how
// many of a transfer's bytes must be; `failed(errno, transfer)` makes the error, with
// errno 0 where nothing was moved.
template <typename Needed, typename Failed>
absl::Status RunWhole(BlockIo& io, std::vector<Transfer> transfers, bool direct,
                      const Needed& needed, const Failed& failed) {
  while (!transfers.empty()) {
    io.Run(transfers);
    std::vector<Transfer> left;
    for (Transfer& transfer : transfers) {
      if (transfer.result == -EINTR || transfer.result == -EAGAIN) {
        left.push_back(transfer);
        continue;
      }
      if (transfer.result < 0) return failed(static_cast<int>(-transfer.result), transfer);
      if (static_cast<uint64_t>(transfer.result) >= needed(transfer)) continue;
      const uint64_t progress = Progress(transfer.result, direct);
      if (progress == 0) return failed(0, transfer);
      transfer.offset += progress;
      transfer.data += progress;
      transfer.bytes -= progress;
      left.push_back(transfer);
    }
    transfers = std::move(left);
  }
  return absl::OkStatus();
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(BlockIo& io, ScopedFd fd, std::string path, bool wants_alignment,
                    bool is_direct)
      : io_(io),
        fd_(std::move(fd)),
        path_(std::move(path)),
        wants_alignment_(wants_alignment),
        is_direct_(is_direct) {}

  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) override {
    if (wants_alignment_) {
      absl::Status status = CheckAlignment(offset, data.data(), data.size(), path_);
      if (!status.ok()) return status;
    }
    // Only read from.
    std::byte* memory = const_cast<std::byte*>(data.data());
    return RunWhole(
        io_,
        Cut(Transfer::Kind::kWrite, fd_.get(), offset, memory, data.size(), io_.transfer_bytes()),
        is_direct_, [](const Transfer& transfer) { return transfer.bytes; },
        [this](int error, const Transfer& transfer) {
          // A short write that makes no progress: the next would say why, but on some
          // file systems it never does.
          return WriteError(error == 0 ? ENOSPC : error, transfer.bytes);
        });
  }

  absl::Status Truncate(uint64_t size_bytes) override {
    int result;
    do {
      result = ::ftruncate(fd_.get(), static_cast<off_t>(size_bytes));
    } while (result != 0 && errno == EINTR);
    if (result != 0) return PosixError(errno, "cutting to size", path_);
    return absl::OkStatus();
  }

  absl::Status Sync() override { return SyncFd(fd_.get(), path_); }

  absl::Status Close() override {
    if (const int error = fd_.Close(); error != 0) return PosixError(error, "closing", path_);
    return absl::OkStatus();
  }

  bool is_direct() const override { return is_direct_; }

 private:
  absl::Status WriteError(int error, uint64_t bytes_left) const {
    if (error == ENOSPC || error == EDQUOT) {
      const absl::StatusOr<uint64_t> free_bytes = FreeBytesOf(fd_.get(), path_);
      if (free_bytes.ok()) return NoSpaceError("writing", path_, bytes_left, *free_bytes);
    }
    return PosixError(error, "writing", path_);
  }

  BlockIo& io_;
  ScopedFd fd_;
  const std::string path_;
  const bool wants_alignment_;
  const bool is_direct_;
};

class PosixReadableFile : public ReadableFile {
 public:
  PosixReadableFile(BlockIo& io, ScopedFd fd, std::string path, uint64_t size_bytes,
                    bool wants_alignment, bool is_direct)
      : io_(io),
        fd_(std::move(fd)),
        path_(std::move(path)),
        size_bytes_(size_bytes),
        wants_alignment_(wants_alignment),
        is_direct_(is_direct) {}

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    uint64_t limit = size_bytes_;
    if (wants_alignment_) {
      absl::Status status = CheckAlignment(offset, out.data(), out.size(), path_);
      if (!status.ok()) return status;
      limit += (kIoAlignmentBytes - limit % kIoAlignmentBytes) % kIoAlignmentBytes;
    }
    if (offset > limit || out.size() > limit - offset) return TooShort(offset, out.size());
    return RunWhole(
        io_,
        Cut(Transfer::Kind::kRead, fd_.get(), offset, out.data(), out.size(), io_.transfer_bytes()),
        is_direct_, [this](const Transfer& transfer) { return BytesInFile(transfer); },
        [this](int error, const Transfer& transfer) {
          if (error != 0) return PosixError(error, "reading", path_);
          return TooShort(transfer.offset, BytesInFile(transfer));  // cut since it was opened
        });
  }

  uint64_t size_bytes() const override { return size_bytes_; }
  bool is_direct() const override { return is_direct_; }

 private:
  // What must be there: the last block's end may lie behind the file's.
  uint64_t BytesInFile(const Transfer& transfer) const {
    return std::min(transfer.bytes, size_bytes_ - std::min(transfer.offset, size_bytes_));
  }

  absl::Status TooShort(uint64_t offset, uint64_t wanted_bytes) const {
    struct stat now {};
    const uint64_t has =
        ::fstat(fd_.get(), &now) == 0 ? static_cast<uint64_t>(now.st_size) : size_bytes_;
    return absl::OutOfRangeError(absl::StrCat("reading ", wanted_bytes, " bytes at offset ", offset,
                                              " of ", path_, ": it has only ", has, " bytes"));
  }

  BlockIo& io_;
  const ScopedFd fd_;
  const std::string path_;
  const uint64_t size_bytes_;
  const bool wants_alignment_;
  const bool is_direct_;
};

// Sets space aside, or at least finds that there is enough.
// Asked first: fallocate of more than there is takes all there is before it fails, and
// whoever else writes to the file system meanwhile finds it full.
absl::Status Reserve(int fd, uint64_t bytes, const std::string& path) {
  if (bytes == 0) return absl::OkStatus();
  const absl::StatusOr<uint64_t> free_bytes = FreeBytesOf(fd, path);
  if (!free_bytes.ok()) return free_bytes.status();
  if (*free_bytes < bytes) return NoSpaceError("reserving space for", path, bytes, *free_bytes);
  int result;
  do {
    result = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return absl::OkStatus();
  const int error = errno;
  if (error != ENOSPC && error != EDQUOT) return PosixError(error, "reserving space for", path);
  const absl::StatusOr<uint64_t> left = FreeBytesOf(fd, path);
  return NoSpaceError("reserving space for", path, bytes, left.ok() ? *left : *free_bytes);
}

}  // namespace

absl::Status GiveTo(int fd, const FileOwner& owner, unsigned mode, const std::string& path) {
  const uid_t self = ::geteuid();
  if (self != 0 && owner.user_id != self) {
    return absl::PermissionDeniedError(absl::StrCat("giving ", path, " to user ", owner.user_id,
                                                    ": the daemon runs as user ", self,
                                                    ", and only root can give files away"));
  }
  if (self == 0 && ::fchown(fd, owner.user_id, owner.group_id) != 0) {
    return PosixError(errno, "setting the owner of", path);
  }
  if (::fchmod(fd, mode) != 0) return PosixError(errno, "setting the mode of", path);
  return absl::OkStatus();
}

absl::Status SyncFd(int fd, const std::string& path) {
  int result;
  do {
    result = ::fsync(fd);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return PosixError(errno, "syncing to storage", path);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FreeBytesOf(int fd, const std::string& path) {
  struct statvfs info {};
  int result;
  do {
    result = ::fstatvfs(fd, &info);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return PosixError(errno, "asking for the free space of", path);
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

absl::StatusOr<std::unique_ptr<WritableFile>> CreatePosixFile(const FileIo& io,
                                                              const PlaceInDirectory& place,
                                                              const std::string& path,
                                                              const CreateOptions& options) {
  ScopedFd fd(OpenAt(place.directory.get(), place.name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!fd.is_open()) return PosixError(errno, "creating", path);
  absl::Status status = GiveTo(fd.get(), options.owner, 0640, path);
  if (status.ok()) status = Reserve(fd.get(), options.reserve_bytes, path);
  if (!status.ok()) {
    ::unlinkat(place.directory.get(), place.name.c_str(), 0);
    return status;
  }
  // Not with O_DIRECT in open(): where that is refused the file exists already.
  const bool is_direct = options.direct && TryDirect(fd.get());
  return std::make_unique<PosixWritableFile>(is_direct ? io.direct : io.buffered, std::move(fd),
                                             path, options.direct, is_direct);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> OpenPosixFile(const FileIo& io,
                                                            const PlaceInDirectory& place,
                                                            const std::string& path, bool direct) {
  // O_NONBLOCK: opening a pipe must not hang. It means nothing for regular files.
  ScopedFd fd(OpenAt(place.directory.get(), place.name.c_str(), O_RDONLY | O_NONBLOCK));
  if (!fd.is_open()) return PosixError(errno, "opening", path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return PosixError(errno, "opening", path);
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("opening ", path, ": it is not a regular file"));
  }
  const bool is_direct = direct && TryDirect(fd.get());
  return std::make_unique<PosixReadableFile>(is_direct ? io.direct : io.buffered, std::move(fd),
                                             path, static_cast<uint64_t>(info.st_size), direct,
                                             is_direct);
}

}  // namespace ckptd
