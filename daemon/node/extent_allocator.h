// Which bytes of which slab are whose: the arena's arithmetic, without memory.
//
// A slab belongs to at most one job at a time. Once it has served a job (its
// descriptor may be in that job's processes, its bytes are that job's) it can serve
// another only after it has been made anew; Allocate says which slabs that concerns. The
// same goes for a slab in quarantine, whoever asks: somebody may still touch its bytes.
#ifndef CKPTD_DAEMON_NODE_EXTENT_ALLOCATOR_H_
#define CKPTD_DAEMON_NODE_EXTENT_ALLOCATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ckptd {

inline constexpr uint64_t kExtentAlignmentBytes = 4096;

struct Extent {
  uint32_t slab = 0;  // index
  uint64_t offset = 0;
  uint64_t length = 0;
  friend bool operator==(const Extent&, const Extent&) = default;
};

// One block of memory that is asked for. Rounded up to kExtentAlignmentBytes.
struct ExtentAsk {
  uint64_t bytes = 0;
  bool contiguous = false;  // in one extent; else it may span extents and slabs
};

struct ExtentGrant {
  std::vector<std::vector<Extent>> blocks;  // one per ask, in order
  std::vector<uint32_t> renewed_slabs;      // to be made anew before they are used
};

// A copyable value. Not thread-safe.
class ExtentAllocator {
 public:
  // Each slab's size is a multiple of kExtentAlignmentBytes.
  explicit ExtentAllocator(std::vector<uint64_t> slab_bytes);

  // All asks or none: nullopt, and no change, when there is not enough.
  std::optional<ExtentGrant> Allocate(absl::string_view job, std::span<const ExtentAsk> asks);
  // Exactly what one Allocate has granted, in any order and portions of blocks.
  void Free(std::span<const Extent> extents);

  // Nothing more is given out of this slab until all of it is free and it is made anew.
  void Quarantine(uint32_t slab) { slabs_[slab].quarantined = true; }

  // The job that the slab serves or served last; empty for a fresh slab.
  const std::string& owner(uint32_t slab) const { return slabs_[slab].owner; }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t total_bytes() const { return total_bytes_; }
  size_t slabs() const { return slabs_.size(); }

 private:
  struct SlabState {
    uint64_t size = 0;
    uint64_t used = 0;
    std::string owner;
    bool quarantined = false;
    std::map<uint64_t, uint64_t> free;  // offset -> length, coalesced
  };

  // The job's own slabs, then idle ones: first those that need no renewal.
  std::vector<uint32_t> Candidates(absl::string_view job) const;
  bool AllocateBlock(absl::string_view job, const ExtentAsk& ask, ExtentGrant& grant);
  // Up to `bytes` from one free range; at least `at_least`. Nothing if there is none.
  std::optional<Extent> Take(uint32_t slab, uint64_t at_least, uint64_t bytes);
  void Claim(uint32_t slab, absl::string_view job, ExtentGrant& grant);

  std::vector<SlabState> slabs_;
  uint64_t used_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

inline uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
inline uint64_t RoundDown(uint64_t value, uint64_t multiple) { return value / multiple * multiple; }

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_EXTENT_ALLOCATOR_H_
