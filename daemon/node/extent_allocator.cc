#include "daemon/node/extent_allocator.h"

#include <algorithm>
#include <cassert>
#include <iterator>

namespace ckptd {

ExtentAllocator::ExtentAllocator(std::vector<uint64_t> slab_bytes) {
  for (uint64_t bytes : slab_bytes) {
    assert(bytes % kExtentAlignmentBytes == 0);
    slabs_.push_back({.size = bytes, .free = {{0, bytes}}});
    total_bytes_ += bytes;
  }
}

std::optional<ExtentGrant> ExtentAllocator::Allocate(absl::string_view job,
                                                     std::span<const ExtentAsk> asks) {
  ExtentAllocator attempt = *this;
  ExtentGrant grant;
  for (const ExtentAsk& ask : asks) {
    if (!attempt.AllocateBlock(job, ask, grant)) return std::nullopt;
  }
  *this = std::move(attempt);
  return grant;
}

std::vector<uint32_t> ExtentAllocator::Candidates(absl::string_view job) const {
  std::vector<uint32_t> own, fresh, to_renew;
  for (uint32_t i = 0; i < slabs_.size(); ++i) {
    const SlabState& slab = slabs_[i];
    if (slab.owner == job && !slab.quarantined) {
      own.push_back(i);
    } else if (slab.used == 0) {
      (slab.owner.empty() ? fresh : to_renew).push_back(i);
    }
  }
  own.insert(own.end(), fresh.begin(), fresh.end());
  own.insert(own.end(), to_renew.begin(), to_renew.end());
  return own;
}

bool ExtentAllocator::AllocateBlock(absl::string_view job, const ExtentAsk& ask,
                                    ExtentGrant& grant) {
  std::vector<Extent>& block = grant.blocks.emplace_back();
  uint64_t left = RoundUp(ask.bytes, kExtentAlignmentBytes);
  if (left > total_bytes_) return false;
  for (uint32_t slab : Candidates(job)) {
    while (left > 0) {
      const uint64_t at_least = ask.contiguous ? left : kExtentAlignmentBytes;
      std::optional<Extent> extent = Take(slab, at_least, left);
      if (!extent.has_value()) break;
      Claim(slab, job, grant);
      block.push_back(*extent);
      left -= extent->length;
    }
    if (left == 0) break;
  }
  return left == 0;
}

std::optional<Extent> ExtentAllocator::Take(uint32_t slab, uint64_t at_least, uint64_t bytes) {
  SlabState& state = slabs_[slab];
  for (auto it = state.free.begin(); it != state.free.end(); ++it) {
    const auto [offset, length] = *it;
    if (length < at_least) continue;
    const uint64_t taken = std::min(length, bytes);
    state.free.erase(it);
    if (taken < length) state.free.emplace(offset + taken, length - taken);
    state.used += taken;
    used_bytes_ += taken;
    return Extent{.slab = slab, .offset = offset, .length = taken};
  }
  return std::nullopt;
}

void ExtentAllocator::Claim(uint32_t slab, absl::string_view job, ExtentGrant& grant) {
  SlabState& state = slabs_[slab];
  if (state.owner == job && !state.quarantined) return;
  if (!state.owner.empty()) grant.renewed_slabs.push_back(slab);
  state.owner = std::string(job);
  state.quarantined = false;
}

void ExtentAllocator::Free(std::span<const Extent> extents) {
  for (const Extent& extent : extents) {
    SlabState& slab = slabs_[extent.slab];
    assert(extent.length > 0 && slab.used >= extent.length);
    slab.used -= extent.length;
    used_bytes_ -= extent.length;
    auto [it, inserted] = slab.free.emplace(extent.offset, extent.length);
    assert(inserted);
    if (auto next = std::next(it);
        next != slab.free.end() && it->first + it->second == next->first) {
      it->second += next->second;
      slab.free.erase(next);
    }
    if (it != slab.free.begin()) {
      auto before = std::prev(it);
      if (before->first + before->second == it->first) {
        before->second += it->second;
        slab.free.erase(it);
      }
    }
  }
}

}  // namespace ckptd
