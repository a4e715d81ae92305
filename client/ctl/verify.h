// Reads a whole checkpoint from storage and checks everything that its manifest
// says: files, headers, and every chunk's checksum.
#ifndef CKPTD_CLIENT_CTL_VERIFY_H_
#define CKPTD_CLIENT_CTL_VERIFY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

enum class ProblemKind {
  kManifest,        // it can't be decoded; nothing else could be checked
  kMissingFile,     //
  kWrongSize,       //
  kUnreadable,      // the file system gave an error
  kHeaderChecksum,  //
  kHeaderContent,   // the safetensors header disagrees with the manifest
  kChunkChecksum,   //
};
// "chunk_checksum": stable, for programs.
std::string ProblemKindName(ProblemKind kind);

struct Problem {
  ProblemKind kind = ProblemKind::kManifest;
  std::string file;               // relative to the job's folder
  std::string tensor;             // or value; empty where the problem is the file's
  std::optional<uint64_t> chunk;  // of the piece, counted from 0
  std::string message;            // the whole of it, for people
};

struct VerifyReport {
  std::string folder;  // the checkpoint's
  uint64_t files = 0;
  uint64_t tensors = 0;           // and values
  uint64_t chunks = 0;            // checked
  uint64_t bytes = 0;             // of them
  std::vector<Problem> problems;  // by file, then place in it

  bool ok() const { return problems.empty(); }
};

struct VerifyOptions {
  int threads = 2;
  // The catalog knows this checkpoint: a missing manifest is damage.
  bool is_committed = false;
  // Called from any of the threads, one at a time, as reading goes on.
  std::function<void(uint64_t bytes_done, uint64_t bytes_total)> progress;
};

// `folder`: <store>/<job>/step-<step>, absolute, without links. NOT_FOUND if there is
// no manifest and none is expected; damage is no error but a problem in the report.
absl::StatusOr<VerifyReport> VerifyCheckpoint(FileSystem& file_system, const std::string& folder,
                                              const VerifyOptions& options);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_VERIFY_H_
