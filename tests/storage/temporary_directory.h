// A directory of its own for one test, removed with all in it.
#ifndef CKPTD_TESTS_STORAGE_TEMPORARY_DIRECTORY_H_
#define CKPTD_TESTS_STORAGE_TEMPORARY_DIRECTORY_H_

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "storage/file_system/file_system.h"

namespace ckptd {

class TemporaryDirectory {
 public:
  // In `parent`, or where TMPDIR says.
  explicit TemporaryDirectory(std::filesystem::path parent = {}) {
    if (parent.empty()) parent = std::filesystem::temp_directory_path();
    std::string name = (parent / "ckptd-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    // As a FileSystem wants it: without symbolic links.
    path_ = std::filesystem::canonical(name).string();
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Who runs the test: files may be given to nobody else without being root.
inline FileOwner Self() { return FileOwner{::geteuid(), ::getegid()}; }

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_TEMPORARY_DIRECTORY_H_
