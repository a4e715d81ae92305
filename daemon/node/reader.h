// Reads planned ranges into the arena and verifies every chunk, also of what lies there.
#ifndef CKPTD_DAEMON_NODE_READER_H_
#define CKPTD_DAEMON_NODE_READER_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/node/arena.h"
#include "daemon/node/probe.h"
#include "daemon/node/read_plan.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// The files of one load. Thread-safe; its methods block.
class LoadReader {
 public:
  LoadReader(FileSystem& file_system, NodeProbe& probe, std::string job_folder,
             std::shared_ptr<const v1::PlanLoadResponse> plan, bool direct_io)
      : file_system_(file_system),
        probe_(probe),
        job_folder_(std::move(job_folder)),
        plan_(std::move(plan)),
        direct_io_(direct_io) {}

  // Fills buffer[0, read.length). DATA_LOSS names file, chunk and tensor.
  [[nodiscard]] absl::Status Read(const PlannedRead& read, std::span<std::byte> buffer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether `image`, of the file that the read is of, has all the bytes that the read wants,
  // with the right checksums, and can be handed over in whole elements where it lies.
  bool IsIntact(const PlannedRead& read, const ArenaLease& image) const;
  // The file's size and its header's checksum; `buffer` is scratch.
  [[nodiscard]] absl::Status VerifyHeader(uint32_t file, std::span<std::byte> buffer)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // By Read, from storage.
  uint64_t bytes_read() const { return bytes_read_; }

 private:
  // A block in which one read ends and the next begins: whoever comes first reads it,
  // the other takes it from here.
  struct SharedBlock {
    absl::Mutex mutex;
    std::string bytes ABSL_GUARDED_BY(mutex);  // empty until it was read
  };
  using BlockKey = std::pair<uint32_t, uint64_t>;  // file, offset

  [[nodiscard]] absl::Status ReadShared(const ReadableFile& file, BlockKey key,
                                        std::span<std::byte> block) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::shared_ptr<ReadableFile>> Open(uint32_t file) ABSL_LOCKS_EXCLUDED(mutex_);
  // The checksum of a range of the part.
  using RangeChecksum = absl::FunctionRef<uint32_t(uint64_t at, uint64_t length)>;
  // Where in the part the first chunk begins whose checksum is not the plan's.
  std::optional<uint64_t> FindDamage(const ReadPart& part, RangeChecksum checksum) const;
  absl::Status DamageError(const ReadPart& part, uint64_t at) const;
  std::string Path(uint32_t file) const;

  FileSystem& file_system_;
  NodeProbe& probe_;
  const std::string job_folder_;
  const std::shared_ptr<const v1::PlanLoadResponse> plan_;
  const bool direct_io_;
  std::atomic<uint64_t> bytes_read_ = 0;
  absl::Mutex mutex_;
  std::map<uint32_t, std::shared_ptr<ReadableFile>> files_ ABSL_GUARDED_BY(mutex_);
  // Those that one of their two readers has had: about as many as reads run side by side.
  std::map<BlockKey, std::shared_ptr<SharedBlock>> shared_blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_READER_H_
