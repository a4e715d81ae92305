#include "client/cpp/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd {

absl::StatusOr<std::vector<PlacedBox>> ParsePlacements(
    const google::protobuf::RepeatedPtrField<v1::Placement>& placements,
    const ClientLayout& layout) {
  std::vector<PlacedBox> parsed;
  parsed.reserve(placements.size());
  for (const v1::Placement& placement : placements) {
    PlacedBox placed{placement.shard(),
                     {ToExtents(placement.offsets()), ToExtents(placement.lengths())},
                     placement.image_offset()};
    if (placed.shard >= layout.shards().size() ||
        placed.box.offsets.size() != placed.box.lengths.size() ||
        placed.box.dimensions() != layout.shards()[placed.shard].box.dimensions() ||
        !Contains(layout.shards()[placed.shard].box, placed.box)) {
      return absl::DataLossError(absl::StrCat("the node placed ", ToString(placed.box),
                                              " of shard ", placed.shard,
                                              ", which this rank does not have"));
    }
    parsed.push_back(std::move(placed));
  }
  return parsed;
}

SmallContents::SmallContents(const SaveRequest& request) {
  const ClientLayout& layout = *request.layout;
  size_t total = 0;
  for (const uint64_t bytes : layout.small_bytes()) total += bytes;
  for (const auto& value : request.values) total += value.size();
  bytes_.resize(total);
  size_t at = 0;
  for (size_t i = 0; i < request.small_tensors.size(); ++i) {
    if (const std::optional<size_t> alias = layout.small_alias_of()[i]; alias.has_value()) {
      ranges_.push_back(ranges_[*alias]);
      continue;
    }
    const StridedMemory& memory = request.small_tensors[i];
    const uint64_t bytes = layout.small_bytes()[i];
    if (bytes > 0) {
      ForEachRun(memory, memory.box, bytes / static_cast<uint64_t>(Volume(memory.box)),
                 [&](uint64_t offset, std::byte* pointer, uint64_t run_bytes) {
                   std::memcpy(bytes_.data() + at + offset, pointer, run_bytes);
                 });
    }
    ranges_.push_back({at, bytes});
    at += bytes;
  }
  for (const auto& value : request.values) {
    if (!value.empty()) std::memcpy(bytes_.data() + at, value.data(), value.size());
    ranges_.push_back({at, value.size()});
    at += value.size();
  }
}

std::span<const std::byte> SmallContents::content(size_t index) const {
  return std::span<const std::byte>(bytes_).subspan(ranges_[index].begin, ranges_[index].size);
}

absl::StatusOr<Snapshot> Snapshot::Start(const SaveRequest& request, const SmallContents& small,
                                         const v1::BeginSaveResponse& response,
                                         const std::vector<PlacedBox>& placements,
                                         LeasedImage::FindSlab find_slab, ExtendLease extend) {
  const absl::StatusOr<LeasedImage> small_image = LeasedImage::Map(response.small(), find_slab);
  if (!small_image.ok()) return small_image.status();
  for (const v1::SmallPlacement& placement : response.small_placements()) {
    if (placement.content() >= small.size()) {
      return absl::DataLossError("the node asked for a small content that was not offered");
    }
    const absl::Status written =
        small_image->Write(small.content(placement.content()), placement.image_offset());
    if (!written.ok()) return written;
  }

  if (!small_image->is_whole()) return absl::DataLossError("the small image's lease is too short");

  absl::StatusOr<LeasedImage> tensors = LeasedImage::Map(response.tensors(), find_slab);
  if (!tensors.ok()) return tensors.status();
  Snapshot snapshot;
  snapshot.tensors_ = *std::move(tensors);
  snapshot.left_.reserve(placements.size());
  for (const PlacedBox& placed : placements) {
    snapshot.left_.push_back({request.shards[placed.shard], placed,
                              request.layout->shards()[placed.shard].element_bytes,
                              request.deferred[placed.shard], nullptr});
  }
  std::sort(snapshot.left_.begin(), snapshot.left_.end(), [](const Copy& a, const Copy& b) {
    return a.placed.image_offset < b.placed.image_offset;
  });
  const absl::Status copied = snapshot.EagerBytesNotLeased() <= kMostPrivateBytes
                                  ? snapshot.CopyEager()
                                  : snapshot.CopyThroughLastEager(extend);
  if (!copied.ok()) return copied;
  return snapshot;
}

bool Snapshot::IsLeased(const Copy& copy) const {
  return tensors_.Holds(copy.placed.image_offset, copy.size_bytes());
}

uint64_t Snapshot::EagerBytesNotLeased() const {
  uint64_t bytes = 0;
  for (const Copy& copy : left_) {
    if (!copy.deferred && !IsLeased(copy)) bytes += copy.size_bytes();
  }
  return bytes;
}

absl::Status Snapshot::CopyEager() {
  std::vector<Copy> left;
  for (Copy& copy : left_) {
    if (!copy.deferred && IsLeased(copy)) {
      const absl::Status written = tensors_.WriteBox(copy.memory, copy.placed.box,
                                                     copy.element_bytes, copy.placed.image_offset);
      if (!written.ok()) return written;
      continue;
    }
    if (!copy.deferred) MakePrivate(copy);
    left.push_back(std::move(copy));
  }
  left_ = std::move(left);
  return absl::OkStatus();
}

absl::Status Snapshot::CopyThroughLastEager(ExtendLease extend) {
  const auto last =
      std::find_if(left_.rbegin(), left_.rend(), [](const Copy& copy) { return !copy.deferred; });
  const auto end = last.base();
  for (auto copy = left_.begin(); copy != end; ++copy) {
    const absl::Status written = CopyInParts(*copy, extend);
    if (!written.ok()) return written;
  }
  left_.erase(left_.begin(), end);
  return absl::OkStatus();
}

void Snapshot::MakePrivate(Copy& copy) {
  const Box& box = copy.placed.box;
  copy.owned = std::make_unique_for_overwrite<std::byte[]>(copy.size_bytes());
  const StridedMemory dense = {
      .data = copy.owned.get(), .box = box, .strides = DenseStrides(box.lengths)};
  CopyBox(copy.memory, dense, box, copy.element_bytes);
  copy.memory = dense;
}

absl::Status Snapshot::CopyDeferred(SnapshotObserver& observer, ExtendLease extend) {
  for (Copy& copy : left_) {
    if (copy.owned == nullptr) observer.BeforeDeferredCopy(copy.placed.shard);
    const absl::Status written = CopyInParts(copy, extend);
    if (!written.ok()) return written;
    copy.owned.reset();
  }
  return absl::OkStatus();
}

absl::Status Snapshot::CopyInParts(const Copy& copy, ExtendLease extend) {
  const Box& box = copy.placed.box;
  const int64_t elements = Volume(box);
  const auto element_bytes = static_cast<int64_t>(copy.element_bytes);
  for (int64_t done = 0; done < elements;) {
    uint64_t offset = copy.placed.image_offset + static_cast<uint64_t>(done * element_bytes);
    if (offset >= tensors_.end()) {
      absl::StatusOr<LeasedImage> next = extend(tensors_.end());
      if (!next.ok()) return next.status();
      if (next->begin() != tensors_.end() || next->end() == next->begin()) {
        return absl::DataLossError("the node did not go on with the image where it had ended");
      }
      tensors_ = *std::move(next);
      continue;
    }
    const int64_t room = static_cast<int64_t>(tensors_.end() - offset) / element_bytes;
    const int64_t count = std::min(elements - done, room);
    if (count == 0) return absl::DataLossError("a lease ends within an element");
    if (count == elements) {
      return tensors_.WriteBox(copy.memory, box, copy.element_bytes, offset);
    }
    for (Box& part : FlatRangeToBoxes(box.lengths, done, count)) {
      for (int d = 0; d < part.dimensions(); ++d) part.offsets[d] += box.offsets[d];
      const absl::Status written = tensors_.WriteBox(copy.memory, part, copy.element_bytes, offset);
      if (!written.ok()) return written;
      offset += static_cast<uint64_t>(Volume(part)) * copy.element_bytes;
    }
    done += count;
  }
  return absl::OkStatus();
}

}  // namespace ckptd
