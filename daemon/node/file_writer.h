// Writes one data file from the arena to storage, in this order:
//   1. the step's folder, a new file with its space set aside, before there is any window:
//      a full disk fails the save while the snapshot has hardly begun;
//   2. the image, window by window, each one a task of its own, so that other files
//      come between; small contents are compared with their SHA-256 first; of each window
//      aligned blocks, several at a time, the checksums of each one's chunks computed on the
//      arena just before it is written;
//   3. the true size; fsync; close; fsync of the folder.
// A step that fails ends the file: it is removed and never synced again.
#ifndef CKPTD_DAEMON_NODE_FILE_WRITER_H_
#define CKPTD_DAEMON_NODE_FILE_WRITER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/node/persist.h"
#include "daemon/node/persist_blocks.h"

namespace ckptd {

// Owned by the tasks that it has running, and by whoever has windows to add. Its steps run
// on the executor.
class FileWriter : public OpenFile, public std::enable_shared_from_this<FileWriter> {
 public:
  // All must outlive it.
  struct Tools {
    FileSystem& file_system;
    NodeProbe& probe;
    Executor& executor;
    const std::atomic<bool>& paused;  // whoever ends the pause calls Resume() then
    int threads;
    bool direct_io;
  };

  FileWriter(const Tools& tools, FileToPersist file, Done<PersistedFile> done);

  // Once.
  void Start() { SubmitNext(); }
  void Add(ArenaLeasePtr window) override ABSL_LOCKS_EXCLUDED(mutex_);
  // If it waits for the end of a pause.
  void Resume() ABSL_LOCKS_EXCLUDED(mutex_);
  // If it waits, for whatever: that won't come, and it ends with `why`.
  void StopWaiting(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<PersistProgress>& progress() const { return file_.progress; }

 private:
  struct Window {
    uint64_t offset = 0;  // in the image
    ArenaLeasePtr memory;
    uint64_t end() const { return offset + memory->size_bytes(); }
  };

  enum class Waits { kNo, kForWindow, kForResume };

  absl::Status Abandoned() const;
  absl::Status CreateFile();
  // A full disk says how much is missing, once this file's own space is free again.
  absl::Status WithSpace(const absl::Status& status) const;
  void SubmitNext();
  // Creates the file or writes its next window, whichever it has come to.
  void Next() ABSL_LOCKS_EXCLUDED(mutex_);
  Waits WaitsFor() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteWindow();
  absl::Status CheckContents() const;
  void WriteHeader() const;
  void WriteBlocks() ABSL_LOCKS_EXCLUDED(mutex_);
  void ComputeChecksums(const ImageBlock& block);
  void WindowWritten() ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish(absl::Status status);
  void End(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  void Describe();
  absl::Status CleanUp(const absl::Status& why);

  const Tools tools_;
  FileToPersist file_;
  const std::string folder_;
  const std::string path_;
  Done<PersistedFile> done_;
  PersistedFile result_;
  std::unique_ptr<WritableFile> writable_;
  bool created_ = false;
  ImageChunks chunks_;
  std::vector<uint32_t> chunk_sums_;  // of the whole file

  // Of the window that is being written.
  Window window_;
  std::vector<ImageChunk> window_chunks_;
  std::vector<ImageBlock> blocks_;
  std::atomic<size_t> next_block_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> failed_{false};

  absl::Mutex mutex_;
  std::deque<Window> windows_ ABSL_GUARDED_BY(mutex_);  // not begun
  uint64_t added_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  Waits waits_ ABSL_GUARDED_BY(mutex_) = Waits::kNo;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_FILE_WRITER_H_
