// One io_uring for all callers: they put their transfers in, a thread of the ring takes
// the completions out and tells whose they were.
//
// Memory that was added is registered with the ring (a "fixed buffer"): the kernel pins
// its pages once, and not for every transfer. Files are not registered: that saves one
// reference count per transfer, which is nothing beside moving megabytes.
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>

#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "storage/file_system/block_io.h"

namespace ckptd {
namespace {

// In flight, of all callers together; more than any device asks for.
constexpr unsigned kDepth = 128;
// How often, a millisecond apart, the kernel may have no memory for one more request.
constexpr int kMostSubmissions = 10'000;
constexpr uint64_t kTransferBytes = uint64_t{4} << 20;
// The kernel's limits: bytes of one registered region, and ours for how many.
constexpr size_t kLargestRegionBytes = size_t{1} << 30;
constexpr unsigned kMostRegions = 1024;

class RingIo : public BlockIo {
 public:
  static absl::StatusOr<std::unique_ptr<BlockIo>> Make() {
    io_uring ring;
    if (const int result = io_uring_queue_init(kDepth, &ring, 0); result < 0) {
      return absl::UnavailableError(absl::StrCat("io_uring: ", strerror(-result)));
    }
    return std::unique_ptr<BlockIo>(new RingIo(ring));
  }

  ~RingIo() override {
    {
      absl::MutexLock lock(&mutex_);
      io_uring_sqe* end = TakeEntry();
      io_uring_prep_nop(end);
      io_uring_sqe_set_data(end, nullptr);
      while (!Submit()) {
      }
    }
    thread_.join();
    io_uring_queue_exit(&ring_);
  }

  void Run(std::span<Transfer> transfers) override {
    absl::BlockingCounter left(static_cast<int>(transfers.size()));
    std::vector<Pending> pending;
    pending.reserve(transfers.size());
    {
      absl::MutexLock lock(&mutex_);
      for (Transfer& transfer : transfers) {
        io_uring_sqe* entry = Prepare(pending.emplace_back(Pending{transfer, left}));
        if (!Submit()) Withdraw(entry, pending.back());
      }
    }
    left.Wait();
  }

  uint64_t transfer_bytes() const override { return kTransferBytes; }

  bool AddMemory(std::span<std::byte> memory) override {
    absl::MutexLock lock(&mutex_);
    if (free_regions_.empty() || memory.empty() || memory.size() > kLargestRegionBytes) {
      return false;
    }
    const unsigned index = free_regions_.back();
    if (!Register(index, memory)) return false;
    free_regions_.pop_back();
    regions_[memory.data()] = {memory.size(), index};
    return true;
  }

  void RemoveMemory(std::span<std::byte> memory) override {
    absl::MutexLock lock(&mutex_);
    const auto region = regions_.find(memory.data());
    if (region == regions_.end()) return;
    // Emptying an entry of the table can't fail.
    (void)Register(region->second.index, {});
    free_regions_.push_back(region->second.index);
    regions_.erase(region);
  }

 private:
  struct Pending {
    Transfer& transfer;
    absl::BlockingCounter& left;
  };
  struct Region {
    size_t bytes = 0;
    unsigned index = 0;
  };

  explicit RingIo(const io_uring& ring) : ring_(ring) {
    if (io_uring_register_buffers_sparse(&ring_, kMostRegions) == 0) {
      for (unsigned index = 0; index < kMostRegions; ++index) free_regions_.push_back(index);
    }
    thread_ = std::thread([this] { Reap(); });
    pthread_setname_np(thread_.native_handle(), "ckptd-ring");
  }

  bool Register(unsigned index, std::span<std::byte> memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const iovec region = {memory.data(), memory.size()};
    const __u64 no_tag = 0;
    return io_uring_register_buffers_update_tag(&ring_, index, &region, &no_tag, 1) == 1;
  }

  // A place in the ring, when one is free.
  io_uring_sqe* TakeEntry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto has_room = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return in_flight_ < kDepth; };
    mutex_.Await(absl::Condition(&has_room));
    ++in_flight_;
    return io_uring_get_sqe(&ring_);  // there is one: Submit emptied the queue
  }

  io_uring_sqe* Prepare(Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const Transfer& transfer = pending.transfer;
    const Region* region = RegionOf(transfer);
    const bool writes = transfer.kind == Transfer::Kind::kWrite;
    const int operation = region != nullptr
                              ? (writes ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED)
                              : (writes ? IORING_OP_WRITE : IORING_OP_READ);
    io_uring_sqe* entry = TakeEntry();
    io_uring_prep_rw(operation, entry, transfer.fd, transfer.data,
                     static_cast<unsigned>(transfer.bytes), transfer.offset);
    if (region != nullptr) entry->buf_index = static_cast<__u16>(region->index);
    io_uring_sqe_set_data(entry, &pending);
    return entry;
  }

  const Region* RegionOf(const Transfer& transfer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto after = regions_.upper_bound(transfer.data);
    if (after == regions_.begin()) return nullptr;
    const auto& [begin, region] = *std::prev(after);
    const size_t offset = static_cast<size_t>(transfer.data - begin);
    return offset + transfer.bytes <= region.bytes ? &region : nullptr;
  }

  // Waits where the kernel is short of memory for requests: those in flight free some.
  // False when that did not help kMostSubmissions times.
  bool Submit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int tries = 0; tries < kMostSubmissions; ++tries) {
      if (io_uring_submit(&ring_) >= 0) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }

  // The kernel has not seen this entry and never will: a no-op goes in its place.
  void Withdraw(io_uring_sqe* entry, Pending& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data(entry, &withdrawn_);
    pending.transfer.result = -EAGAIN;
    pending.left.DecrementCount();
  }

  // The ring's thread, until it meets the entry that belongs to nobody.
  void Reap() {
    for (bool running = true; running;) {
      io_uring_cqe* completion = nullptr;
      if (io_uring_wait_cqe(&ring_, &completion) < 0) continue;  // a signal
      void* const data = io_uring_cqe_get_data(completion);
      const int result = completion->res;
      io_uring_cqe_seen(&ring_, completion);
      {
        absl::MutexLock lock(&mutex_);
        --in_flight_;
      }
      if (data == &withdrawn_) continue;
      if (data == nullptr) {
        running = false;
        continue;
      }
      auto* pending = static_cast<Pending*>(data);
      pending->transfer.result = result;
      pending->left.DecrementCount();
    }
  }

  absl::Mutex mutex_;
  // Its submission side belongs to whoever holds the lock, its completion side to the thread.
  io_uring ring_;
  unsigned in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const std::byte*, Region> regions_ ABSL_GUARDED_BY(mutex_);
  std::vector<unsigned> free_regions_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
  char withdrawn_ = 0;  // its address marks what Withdraw left
};

}  // namespace

absl::StatusOr<std::unique_ptr<BlockIo>> MakeRingIo() { return RingIo::Make(); }

}  // namespace ckptd
