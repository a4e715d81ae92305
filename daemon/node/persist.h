// Writes data files from the arena to storage, side by side; how one file is written is in
// file_writer.h.
#ifndef CKPTD_DAEMON_NODE_PERSIST_H_
#define CKPTD_DAEMON_NODE_PERSIST_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "ckptd/v1/manifest.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/image_layout.h"
#include "daemon/node/probe.h"
#include "daemon/runtime/done.h"
#include "daemon/runtime/executor.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// A small content, which other ranks rely on by its hash.
struct ExpectedContent {
  size_t piece = 0;
  std::string sha256;
  std::string name;
};

// Shared with whoever watches or abandons the attempt.
struct PersistProgress {
  std::atomic<uint64_t> written_bytes{0};
  std::atomic<bool> abandoned{false};
};

struct FileToPersist {
  std::string store_path;
  std::string job;
  uint64_t step = 0;
  std::string file_name;
  FileOwner owner;
  DataFileLayoutPtr layout;
  // Of an image that comes in one window.
  std::vector<ExpectedContent> expected;
  std::shared_ptr<PersistProgress> progress;
};

struct PersistedFile {
  v1::DataFile file;
  // As in the layout: offset, size and checksums; the boxes are the caller's.
  std::vector<v1::Piece> pieces;
  ArenaLeasePtr image;  // all of the file, if it came in one window; else null
};

// A file that was opened, and whose image comes in windows: one where the arena has room for
// all of it, else several. Thread-safe.
class OpenFile {
 public:
  virtual ~OpenFile() = default;
  // The next bytes of the image; the header lies in the first ones, and is written here. A
  // window is given up when it was written, or at once when the file has ended; the file ends
  // with the one that has its end.
  virtual void Add(ArenaLeasePtr window) = 0;
};

class FileWriter;

// Thread-safe.
class Persister {
 public:
  Persister(FileSystem& file_system, NodeProbe& probe, int threads, bool direct_io);
  // As Stop().
  ~Persister();

  // Creates the file and sets its space aside, without waiting for either; what is added to
  // it is written behind that. Whoever opened it holds it until `done`, and abandons it when no
  // more windows come.
  // `done` runs on a thread of this, or on that of whoever opens or abandons the file or stops
  // this: OK when the file is durable. On failure nothing is left of it, unless removing it
  // failed too (the message says so).
  std::shared_ptr<OpenFile> Open(FileToPersist file, Done<PersistedFile> done)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Files of this progress end with ABORTED, at once those not begun or without a window.
  void Abandon(const std::shared_ptr<PersistProgress>& progress) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes files that were persisted, of an attempt that failed. Best effort: what stays
  // is found by the coordinator's collection.
  void Remove(const std::string& store_path, const std::string& job,
              const std::vector<std::string>& relative_paths);
  // While paused no file is created, and none gets its first window; one that has it is
  // finished.
  void SetPaused(bool paused) ABSL_LOCKS_EXCLUDED(mutex_);
  bool paused() const { return paused_.load(); }
  // Files not begun, or with windows not begun or still to come, end with UNAVAILABLE; the others
  // are finished. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // Those that have not gone. They may go with this list, so not under the lock.
  std::vector<std::shared_ptr<FileWriter>> OpenWriters() ABSL_LOCKS_EXCLUDED(mutex_);

  FileSystem& file_system_;
  NodeProbe& probe_;
  const int threads_;
  const bool direct_io_;
  std::atomic<bool> paused_{false};
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<FileWriter>> open_ ABSL_GUARDED_BY(mutex_);
  Executor executor_;  // last: its threads use the rest
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_PERSIST_H_
