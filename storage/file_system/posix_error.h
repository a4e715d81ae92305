// errno as absl::Status, and as the FileSystem interface promises it.
#ifndef CKPTD_STORAGE_FILE_SYSTEM_POSIX_ERROR_H_
#define CKPTD_STORAGE_FILE_SYSTEM_POSIX_ERROR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace ckptd {

// "writing /store/a: No space left on device". `operation` is what was being done
// ("writing"), `error` the errno that came of it.
absl::Status PosixError(int error, std::string_view operation, std::string_view path);

// For a full disk: with bytes needed, bytes free and what to do.
absl::Status NoSpaceError(std::string_view operation, std::string_view path, uint64_t needed_bytes,
                          uint64_t free_bytes);

// "3.2 GiB", "512 bytes".
std::string BytesToString(uint64_t bytes);

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_POSIX_ERROR_H_
