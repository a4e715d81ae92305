// The FileSystem of local disks and mounted parallel file systems.
#ifndef CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_SYSTEM_H_
#define CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_SYSTEM_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

struct PosixOptions {
  // Direct reads and writes through an io_uring, several in flight. Where the kernel
  // refuses it they are system calls, and the FileSystem's fallbacks() say so.
  bool use_io_uring = true;
};

std::unique_ptr<FileSystem> MakePosixFileSystem(const PosixOptions& options = {});

// The directory's absolute path without symbolic links, "." and "..": what a
// configured path becomes before it is given to a FileSystem. NOT_FOUND if there
// is none, FAILED_PRECONDITION if it is no directory.
absl::StatusOr<std::string> CanonicalDirectory(const std::string& path);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_SYSTEM_H_
