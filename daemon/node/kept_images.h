// Copies of data files that were saved from here and still lie in the arena: a load that
// follows soon, after a crash of the trainers, takes its bytes from them.
//
// They live on memory that nobody needs: the arena takes it back, the oldest first, when a
// save or a load asks for more than is free. A copy is never trusted for being here: every
// load compares the checksums, as of bytes from storage.
#ifndef CKPTD_DAEMON_NODE_KEPT_IMAGES_H_
#define CKPTD_DAEMON_NODE_KEPT_IMAGES_H_

#include <compare>
#include <list>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/node/arena.h"

namespace ckptd {

// Whose file, and which; an attempt's file names are its own, so they never come again.
struct KeptName {
  std::string store;
  std::string job;
  std::string path;  // relative to the job's folder
  friend auto operator<=>(const KeptName&, const KeptName&) = default;
};

// Thread-safe. Must be destroyed before the arena.
class KeptImages {
 public:
  // `image` is that of the whole file from its first byte, and not written any more.
  void Keep(KeptName name, ArenaLeasePtr image) ABSL_LOCKS_EXCLUDED(mutex_);
  // Null when it isn't here (any more). Whoever holds the answer keeps the memory.
  ArenaLeasePtr Find(const KeptName& name) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Drop(const KeptName& name) ABSL_LOCKS_EXCLUDED(mutex_);
  // The oldest that no load reads from, else the oldest: its memory is free when those reads
  // are done. False when there is none.
  bool GiveUpOne() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    KeptName name;
    ArenaLeasePtr image;
  };

  // To `removed`, which frees it without the lock.
  void Remove(std::list<Entry>::iterator entry, std::list<Entry>& removed)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // oldest first
  std::map<KeptName, std::list<Entry>::iterator> by_name_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_KEPT_IMAGES_H_
