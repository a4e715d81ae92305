// FileSystem: the few verbs that ckptd needs of storage, and what each promises
// when it returns OK. Implementations: posix (posix_file_system.h) and the
// fault-injecting one for tests (tests/storage/file_system/). An object store
// comes behind the same interface.
//
// Thread safety: a FileSystem may be used from any thread. A WritableFile takes
// concurrent WriteAt calls of disjoint ranges; its other methods, and all of
// them after Close, by one thread at a time. A ReadableFile is for any thread.
//
// Errors: absl::Status whose message names the path, the operation and errno.
// NOT_FOUND (ENOENT), ALREADY_EXISTS (EEXIST), RESOURCE_EXHAUSTED (ENOSPC,
// EDQUOT, with free bytes), PERMISSION_DENIED (EACCES, EPERM, EROFS),
// UNAVAILABLE for what may pass by itself (EINTR is retried inside), DATA_LOSS
// for EIO, INTERNAL otherwise.
//
// Paths are absolute and were built by us: no client's string is used unchecked. But
// folders below a job's belong to its user, who may put anything there: so no path
// is followed through a symbolic link (PERMISSION_DENIED), and only regular files
// are opened. A store's root is made free of links once, when it is configured
// (CanonicalDirectory).
#ifndef CKPTD_STORAGE_FILE_SYSTEM_FILE_SYSTEM_H_
#define CKPTD_STORAGE_FILE_SYSTEM_FILE_SYSTEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace ckptd {

// Direct I/O wants offsets, lengths and addresses to be multiples of this.
inline constexpr uint64_t kIoAlignmentBytes = 4096;

// Whom new files and directories are given to. Only root can give away; for
// others the request is ignored unless it names someone else (PERMISSION_DENIED).
struct FileOwner {
  uint32_t user_id = 0;
  uint32_t group_id = 0;
};

class WritableFile {
 public:
  virtual ~WritableFile() = default;  // closes, if Close was not called; removes nothing

  // Writes all of `data` at `offset`. With direct I/O, offset, size and address
  // must be multiples of kIoAlignmentBytes (INVALID_ARGUMENT otherwise).
  [[nodiscard]] virtual absl::Status WriteAt(uint64_t offset, std::span<const std::byte> data) = 0;
  // Cuts (or extends, with zeros) to `size_bytes`.
  [[nodiscard]] virtual absl::Status Truncate(uint64_t size_bytes) = 0;
  // Data and metadata are on stable storage. After a failure the file's content
  // is unknown: never call again, write a new file.
  [[nodiscard]] virtual absl::Status Sync() = 0;
  [[nodiscard]] virtual absl::Status Close() = 0;
  // Whether the page cache is bypassed: what CreateOptions::direct came to.
  virtual bool is_direct() const = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;

  // Fills `out` from `offset`, or OUT_OF_RANGE naming how much the file has. With
  // direct I/O the same alignment as in WriteAt, except that the file's end may
  // cut the last block: the bytes behind it in `out` are then unspecified.
  [[nodiscard]] virtual absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const = 0;
  // When it was opened.
  virtual uint64_t size_bytes() const = 0;
  virtual bool is_direct() const = 0;
};

struct CreateOptions {
  FileOwner owner;
  // Space set aside at once, so that a full disk fails here (RESOURCE_EXHAUSTED, with
  // bytes needed and free; no file is left) and not half-way. The file's size stays 0.
  // Where the file system can't set aside, its free bytes are compared instead.
  uint64_t reserve_bytes = 0;
  // Bypass the page cache where the file system can; where it can't, the file is
  // buffered instead and is_direct() says so. Alignment is asked for either way.
  bool direct = false;
};

struct DirectoryEntry {
  std::string name;
  bool is_directory = false;
  uint64_t size_bytes = 0;
  absl::Time modified;
};

enum class CommitMode {
  kFailIfExists,  // ALREADY_EXISTS if the name is taken; atomic among all writers
  kReplace,       // readers see the old content or the new, never none or part
};

// A slower way than was meant is in use: what is missing, in a short word, and why.
struct Fallback {
  std::string what;
  std::string why;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // What was found missing when this was made.
  virtual std::vector<Fallback> fallbacks() const { return {}; }
  // Much will be read into and written from `memory`, at most 1 GiB: it may be prepared
  // for that once. False where it could not be; then I/O with it works all the same.
  // RemoveMemory must be called before it is unmapped, with no I/O of it running.
  virtual bool AddMemory(std::span<std::byte> /*memory*/) { return true; }
  virtual void RemoveMemory(std::span<std::byte> /*memory*/) {}

  // A new, empty file, mode 0640; ALREADY_EXISTS if the name is taken.
  virtual absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                               const CreateOptions& options) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path,
                                                             bool direct) = 0;
  // The whole of a small file; RESOURCE_EXHAUSTED if it is above `limit_bytes`.
  virtual absl::StatusOr<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) = 0;

  // Makes `content` appear under `path` in one step, and durable before it
  // returns: temporary name beside it, fsync, atomic rename or create, fsync of
  // the directory. A crash at any moment leaves the old state or the new (and at
  // most a file named ".tmp-..."). After an error other than ALREADY_EXISTS the
  // name may hold the new content all the same: look before writing again.
  [[nodiscard]] virtual absl::Status Commit(const std::string& path, std::string_view content,
                                            CommitMode mode, const FileOwner& owner) = 0;

  // Creates the directory (mode 0750) and missing parents down from `root`,
  // which must exist, and makes each name durable. Those that exist keep their
  // owner and mode. INVALID_ARGUMENT for "." or "..".
  [[nodiscard]] virtual absl::Status CreateDirectories(const std::string& root,
                                                       const std::string& relative,
                                                       const FileOwner& owner) = 0;
  // Names created or removed in the directory before this call are durable.
  [[nodiscard]] virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // NOT_FOUND if there is none. Durable only after SyncDirectory.
  [[nodiscard]] virtual absl::Status Remove(const std::string& path) = 0;
  // FAILED_PRECONDITION if it is not empty.
  [[nodiscard]] virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  // Sorted by name, without "." and "..".
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(const std::string& path) = 0;
  virtual absl::StatusOr<uint64_t> FreeBytes(const std::string& path) = 0;
};

}  // namespace ckptd

#endif  // CKPTD_STORAGE_FILE_SYSTEM_FILE_SYSTEM_H_
