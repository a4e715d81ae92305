#include "client/cpp/snapshot.h"

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
                                         LeasedImage::FindSlab find_slab) {
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

  absl::StatusOr<LeasedImage> tensors = LeasedImage::Map(response.tensors(), find_slab);
  if (!tensors.ok()) return tensors.status();
  Snapshot snapshot;
  snapshot.tensors_ = *std::move(tensors);
  for (const PlacedBox& placed : placements) {
    const StridedMemory& memory = request.shards[placed.shard];
    const uint64_t element_bytes = request.layout->shards()[placed.shard].element_bytes;
    if (request.deferred[placed.shard]) {
      snapshot.deferred_.push_back({memory, placed, element_bytes});
      continue;
    }
    const absl::Status written =
        snapshot.tensors_.WriteBox(memory, placed.box, element_bytes, placed.image_offset);
    if (!written.ok()) return written;
  }
  return snapshot;
}

absl::Status Snapshot::CopyDeferred(SnapshotObserver& observer) const {
  for (const Copy& copy : deferred_) {
    observer.BeforeDeferredCopy(copy.placed.shard);
    const absl::Status written = tensors_.WriteBox(copy.memory, copy.placed.box, copy.element_bytes,
                                                   copy.placed.image_offset);
    if (!written.ok()) return written;
  }
  return absl::OkStatus();
}

}  // namespace ckptd
