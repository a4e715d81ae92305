// The arena: this node's staging memory, made of slabs, given out as leases.
//
// Its size is fixed at the start and never exceeded: a slab that must change jobs is
// destroyed before its successor is made.
#ifndef CKPTD_DAEMON_NODE_ARENA_H_
#define CKPTD_DAEMON_NODE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/admission.h"
#include "daemon/node/probe.h"
#include "daemon/node/slab.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/done.h"

namespace ckptd {

class Arena;

// A contiguous run of a lease.
struct ArenaPart {
  uint64_t slab_id = 0;
  uint64_t slab_offset = 0;
  uint64_t image_offset = 0;  // of the part's first byte in the whole lease
  std::span<std::byte> bytes;
};

// A hold on arena memory, seen as one image of ascending offsets. Immutable; the
// memory goes back with the lease. What the bytes are is the holder's concern: they
// are shared with trainers, so nothing read from them may be trusted twice.
class ArenaLease {
 public:
  ~ArenaLease();
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;

  std::span<const ArenaPart> parts() const { return parts_; }
  // Rounded up to 4 KiB.
  uint64_t size_bytes() const;
  // Calls `run` for each contiguous run of [offset, offset + length), in order.
  void ForEachRun(uint64_t offset, uint64_t length,
                  absl::FunctionRef<void(std::span<std::byte>)> run) const;
  void Write(uint64_t offset, absl::string_view content) const;
  // The parts that overlap [offset, offset + length), cut to it, in order.
  std::vector<ArenaPart> Cut(uint64_t offset, uint64_t length) const;
  // As the part of an image of `image_bytes` that begins at `image_offset`.
  v1::Lease ToProto(uint64_t image_bytes, uint64_t image_offset = 0) const;
  // To be called before a lease is given up that a trainer may still read or write: its
  // slabs serve nobody again before they were made anew, so the trainer touches only
  // memory that is no longer the arena's.
  void Quarantine() const;
  // Nobody needs the memory itself any more, only what it holds, and that can be given up:
  // it doesn't count as used. Once at most.
  void SetIdle() const;

 private:
  friend class Arena;
  ArenaLease(Arena& arena, TicketId ticket) : arena_(arena), ticket_(ticket) {}

  Arena& arena_;
  const TicketId ticket_;
  mutable bool is_idle_ = false;  // guarded by the arena's lock
  std::vector<Extent> extents_;
  std::vector<ArenaPart> parts_;
};

using ArenaLeasePtr = std::shared_ptr<const ArenaLease>;

// A place in the order of admission; see admission.h. It is given up with the
// object; leases made under it live on.
class ArenaTicket {
 public:
  ~ArenaTicket();
  ArenaTicket(const ArenaTicket&) = delete;
  ArenaTicket& operator=(const ArenaTicket&) = delete;

  void Expect(uint64_t bytes);
  void ExpectRevolving(uint64_t bytes);

 private:
  friend class Arena;
  ArenaTicket(Arena& arena, TicketId id) : arena_(arena), id_(id) {}
  Arena& arena_;
  const TicketId id_;
};

using ArenaTicketPtr = std::shared_ptr<ArenaTicket>;

struct ArenaOptions {
  uint64_t arena_bytes = 0;
  uint64_t slab_bytes = 0;  // the last slab may be smaller
  int touch_threads = 1;
};

// Thread-safe. Must outlive its leases and tickets. Leases and tickets may be destroyed
// under any lock: that never calls back.
class Arena {
 public:
  static absl::StatusOr<std::unique_ptr<Arena>> Create(const ArenaOptions& options,
                                                       FileSystem& file_system, const Clock& clock,
                                                       Alarms& alarms, NodeProbe& probe);
  // As Stop().
  ~Arena();
  // `give_up_one` gives up one idle lease, or answers false: there is none. Called on the
  // arena's thread as long as somebody waits for memory. Before the first Acquire.
  void SetReclaimer(std::function<bool()> give_up_one) ABSL_LOCKS_EXCLUDED(mutex_);
  // Answers everyone who waits with UNAVAILABLE. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  ArenaTicketPtr Open(std::string job, std::string label) ABSL_LOCKS_EXCLUDED(mutex_);
  // All blocks or an error: RESOURCE_EXHAUSTED for what can never fit,
  // DEADLINE_EXCEEDED naming who holds the arena. Except for the former, `done`
  // runs on the arena's own thread.
  void Acquire(ArenaTicketPtr ticket, std::vector<ExtentAsk> asks, absl::Time deadline,
               Done<std::vector<ArenaLeasePtr>> done) ABSL_LOCKS_EXCLUDED(mutex_);

  struct SharedSlab {
    UniqueFd descriptor;
    uint64_t size_bytes = 0;
  };
  // A descriptor to send to a process, if `may_use` says so of the slab's job.
  // NOT_FOUND for an unknown slab, PERMISSION_DENIED for another job's.
  absl::StatusOr<SharedSlab> Share(uint64_t slab_id,
                                   absl::FunctionRef<bool(const std::string& job)> may_use)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Without idle leases.
  uint64_t used_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t idle_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  friend class ArenaLease;
  friend class ArenaTicket;
  struct Waiter {
    ArenaTicketPtr ticket;
    Done<std::vector<ArenaLeasePtr>> done;
    uint64_t bytes = 0;
    absl::Time started;
    AlarmId alarm = 0;
    bool expired = false;
  };

  Arena(const ArenaOptions& options, std::vector<uint64_t> slab_bytes, FileSystem& file_system,
        const Clock& clock, Alarms& alarms, NodeProbe& probe);

  void Release(const ArenaLease& lease) ABSL_LOCKS_EXCLUDED(mutex_);
  void SetIdle(const ArenaLease& lease) ABSL_LOCKS_EXCLUDED(mutex_);
  void Quarantine(std::span<const Extent> extents) ABSL_LOCKS_EXCLUDED(mutex_);
  void Complete(TicketId ticket) ABSL_LOCKS_EXCLUDED(mutex_);
  void Expire(RequestId request) ABSL_LOCKS_EXCLUDED(mutex_);
  // The arena's thread: expiries and grants, one at a time.
  void Run();
  bool AnswerExpired() ABSL_LOCKS_EXCLUDED(mutex_);
  bool GrantNext() ABSL_LOCKS_EXCLUDED(mutex_);
  bool ReclaimOne() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MakeSlabs(std::span<const uint32_t> indices) ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<ArenaLeasePtr> MakeLeases(const Admission::Admitted& admitted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ReportUse() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::vector<uint64_t> slab_bytes_;
  const uint64_t total_bytes_;
  const int touch_threads_;
  FileSystem& file_system_;
  const Clock& clock_;
  Alarms& alarms_;
  NodeProbe& probe_;

  mutable absl::Mutex mutex_;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  // By index; null while a slab is made anew, or after that has failed.
  std::vector<std::unique_ptr<Slab>> slabs_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<RequestId, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_slab_id_ ABSL_GUARDED_BY(mutex_) = 1;
  std::function<bool()> give_up_one_ ABSL_GUARDED_BY(mutex_);
  bool changed_ ABSL_GUARDED_BY(mutex_) = false;  // the thread has something to look at
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_ARENA_H_
