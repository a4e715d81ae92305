// Files of the posix file system, and what creating one takes.
#ifndef CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_H_
#define CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_H_

#include <memory>
#include <string>

#include "storage/file_system/block_io.h"
#include "storage/file_system/file_system.h"
#include "storage/file_system/posix_path.h"

namespace ckptd {

// Gives an open file or directory to its owner and sets its mode, whatever the umask.
absl::Status GiveTo(int fd, const FileOwner& owner, unsigned mode, const std::string& path);

// fsync with EINTR retried; any other failure is final.
absl::Status SyncFd(int fd, const std::string& path);

// Bytes that an unprivileged user can still write to the file system of `fd`.
absl::StatusOr<uint64_t> FreeBytesOf(int fd, const std::string& path);

// What moves a file's bytes. Must outlive the files.
struct FileIo {
  BlockIo& direct;    // past the page cache
  BlockIo& buffered;  // through it
};

// Creates a file at `place`; on failure none is left. `path` is for messages.
absl::StatusOr<std::unique_ptr<WritableFile>> CreatePosixFile(const FileIo& io,
                                                              const PlaceInDirectory& place,
                                                              const std::string& path,
                                                              const CreateOptions& options);

absl::StatusOr<std::unique_ptr<ReadableFile>> OpenPosixFile(const FileIo& io,
                                                            const PlaceInDirectory& place,
                                                            const std::string& path, bool direct);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_H_
