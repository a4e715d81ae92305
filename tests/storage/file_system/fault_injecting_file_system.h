// A FileSystem that fails on demand, around another one. For tests only.
//
// The faults that ckptd must survive, and how a test makes each:
//   - one call fails, or all from some call on      Inject
//   - a call takes effect, but its answer is lost   Inject with after_effect
//   - the disk fills up                             LimitSpace
//   - storage is slow, or hangs                     CloseGate, AwaitBlocked, OpenGate
//   - power fails: what was not synced is lost      PowerOff
// And it records every call in order, so that a test can say what came before what.
#ifndef CKPTD_TESTS_STORAGE_FILE_SYSTEM_FAULT_INJECTING_FILE_SYSTEM_H_
#define CKPTD_TESTS_STORAGE_FILE_SYSTEM_FAULT_INJECTING_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

enum class FileOperation {
  kCreate,
  kOpen,
  kReadWhole,
  kCommit,
  kCreateDirectories,
  kSyncDirectory,
  kRemove,
  kRemoveDirectory,
  kList,
  kFreeBytes,
  kWriteAt,
  kTruncate,
  kSync,
  kClose,
  kReadAt,
};
std::string_view FileOperationName(FileOperation operation);

struct FileOperationRecord {
  FileOperation operation;
  std::string path;
  uint64_t bytes = 0;  // written or read, of WriteAt, ReadAt and Commit
  absl::Status result;
};

struct Fault {
  FileOperation operation;
  // Which call: the first that this fault could meet is 1.
  int from_call = 1;
  int calls = 1;  // how many from there on
  absl::Status status = absl::UnavailableError("injected fault");
  // Only calls whose path contains this.
  std::string path_part;
  // The call takes effect and fails all the same: its answer was lost.
  bool after_effect = false;
};

// Thread-safe. Must outlive its files, and `base` must outlive it.
class FaultInjectingFileSystem : public FileSystem {
 public:
  explicit FaultInjectingFileSystem(FileSystem& base);
  // Opens the gate.
  ~FaultInjectingFileSystem() override;

  void Inject(Fault fault) ABSL_LOCKS_EXCLUDED(mutex_);
  void ClearFaults() ABSL_LOCKS_EXCLUDED(mutex_);

  // WriteAt and Commit fail with RESOURCE_EXHAUSTED once so many more bytes are
  // written (a WriteAt that does not fit writes what fits), and so does a Create that
  // reserves more than is left. What a Create has reserved is taken at once; what a file
  // has taken comes back when it is removed. FreeBytes answers what is left.
  void LimitSpace(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  void LiftSpaceLimit() ABSL_LOCKS_EXCLUDED(mutex_);

  // From here on, calls of `operation` block before they have any effect, until
  // OpenGate. One gate at a time.
  void CloseGate(FileOperation operation = FileOperation::kWriteAt) ABSL_LOCKS_EXCLUDED(mutex_);
  void OpenGate() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits until at least so many calls stand at the gate; false after a minute.
  [[nodiscard]] bool AwaitBlocked(int calls) const ABSL_LOCKS_EXCLUDED(mutex_);

  // The machine loses power. Of each file written here, what was written since its
  // last Sync is lost or kept, range by range, as `seed` decides (lost: zeros), and so
  // is each name made or removed since its directory's last SyncDirectory. A name
  // whose file never was synced may stay, with nothing in it. What Commit and
  // CreateDirectories returned OK for stays. Calls blocked at the gate fail.
  //
  // Afterwards every call here fails with UNAVAILABLE: a test goes on, as the restarted
  // process, with another FileSystem over the same base. Returns the base's error if
  // the loss could not be acted out. No call may be running but those at the gate.
  absl::Status PowerOff(uint64_t seed) ABSL_LOCKS_EXCLUDED(mutex_);

  // In order of completion.
  std::vector<FileOperationRecord> records() const ABSL_LOCKS_EXCLUDED(mutex_);
  int CountCalls(FileOperation operation) const ABSL_LOCKS_EXCLUDED(mutex_);

  std::vector<Fallback> fallbacks() const override { return base_.fallbacks(); }
  bool AddMemory(std::span<std::byte> memory) override { return base_.AddMemory(memory); }
  void RemoveMemory(std::span<std::byte> memory) override { base_.RemoveMemory(memory); }
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path,
                                                       const CreateOptions& options) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> Open(const std::string& path, bool direct) override;
  absl::StatusOr<std::string> ReadWhole(const std::string& path, uint64_t limit_bytes) override;
  absl::Status Commit(const std::string& path, std::string_view content, CommitMode mode,
                      const FileOwner& owner) override;
  absl::Status CreateDirectories(const std::string& root, const std::string& relative,
                                 const FileOwner& owner) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<DirectoryEntry>> List(const std::string& path) override;
  absl::StatusOr<uint64_t> FreeBytes(const std::string& path) override;

 private:
  class File;
  class Reader;

  struct ArmedFault {
    Fault fault;
    int met = 0;
  };
  // What a power failure may take from one file created here.
  struct Volatile {
    bool name_is_durable = false;
    std::vector<std::pair<uint64_t, uint64_t>> unsynced;  // offset, bytes
    uint64_t reserved_bytes = 0;                          // and not written
    uint64_t taken_bytes = 0;                             // of the space
  };

  // Runs `effect` as one call: gate, faults, record. `effect` returns Status or StatusOr.
  template <typename Effect>
  auto Run(FileOperation operation, const std::string& path, uint64_t bytes, const Effect& effect)
      -> decltype(effect());
  absl::Status PassGate(FileOperation operation) ABSL_LOCKS_EXCLUDED(mutex_);
  // The fault that this call meets; `after_effect` says on which side of it.
  std::pair<absl::Status, bool> MeetFault(FileOperation operation, const std::string& path)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Record(FileOperation operation, const std::string& path, uint64_t bytes,
              const absl::Status& result) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes up to `bytes` from what the file has reserved and from the space that is left;
  // what it got.
  uint64_t TakeSpace(const std::string& path, uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status LoseRanges(const std::string& path,
                          const std::vector<std::pair<uint64_t, uint64_t>>& ranges);

  FileSystem& base_;
  mutable absl::Mutex mutex_;
  std::vector<ArmedFault> faults_ ABSL_GUARDED_BY(mutex_);
  bool space_is_limited_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t space_left_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool gate_is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  FileOperation gated_operation_ ABSL_GUARDED_BY(mutex_) = FileOperation::kWriteAt;
  int blocked_ ABSL_GUARDED_BY(mutex_) = 0;
  bool power_is_off_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<FileOperationRecord> records_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Volatile> volatile_files_ ABSL_GUARDED_BY(mutex_);
  // Removed, and that not yet durable: content by path.
  std::map<std::string, std::string> undurable_removals_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_STORAGE_FILE_SYSTEM_FAULT_INJECTING_FILE_SYSTEM_H_
