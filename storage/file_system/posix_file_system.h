// The FileSystem of local disks and mounted parallel file systems.
#ifndef CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_SYSTEM_H_
#define CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_SYSTEM_H_

#include <memory>

#include "storage/file_system/file_system.h"

namespace ckptd {

std::unique_ptr<FileSystem> MakePosixFileSystem();

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_POSIX_FILE_SYSTEM_H_
