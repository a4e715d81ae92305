// A folder that lives as long as a test.
#ifndef CKPTD_TESTS_TEMPORARY_FOLDER_H_
#define CKPTD_TESTS_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace ckptd {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::mkdtemp(name_)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  char name_[32] = "/tmp/ckptd-test-XXXXXX";
  const std::string path_;
};

inline std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void WriteAll(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_TEMPORARY_FOLDER_H_
