// Copying one rank's part of a save into its leases.
#ifndef CKPTD_CLIENT_CPP_SNAPSHOT_H_
#define CKPTD_CLIENT_CPP_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/node.pb.h"
#include "client/cpp/leased_image.h"
#include "client/cpp/save_request.h"

namespace ckptd {

// A box of a shard and its place in the tensor file's image.
struct PlacedBox {
  size_t shard = 0;
  Box box;
  uint64_t image_offset = 0;
};

// As the node's answer has them. DATA_LOSS for one that lies outside its shard.
absl::StatusOr<std::vector<PlacedBox>> ParsePlacements(
    const google::protobuf::RepeatedPtrField<v1::Placement>& placements,
    const ClientLayout& layout);

// Small tensors, then values, gathered densely, in the layout's order: a copy. Tied
// tensors are the same copy.
class SmallContents {
 public:
  explicit SmallContents(const SaveRequest& request);

  size_t size() const { return ranges_.size(); }
  std::span<const std::byte> content(size_t index) const;

 private:
  struct Range {
    size_t begin = 0;
    size_t size = 0;
  };

  std::vector<std::byte> bytes_;
  std::vector<Range> ranges_;
};

// The copying itself, in two parts.
class Snapshot {
 public:
  // `placements` are of request.layout. Copies the small contents and whatever is
  // not deferred before it returns.
  static absl::StatusOr<Snapshot> Start(const SaveRequest& request, const SmallContents& small,
                                        const v1::BeginSaveResponse& response,
                                        const std::vector<PlacedBox>& placements,
                                        LeasedImage::FindSlab find_slab);

  // Copies the rest, telling `observer` before each shard.
  [[nodiscard]] absl::Status CopyDeferred(SnapshotObserver& observer) const;

 private:
  struct Copy {
    StridedMemory memory;
    PlacedBox placed;
    uint64_t element_bytes;
  };

  LeasedImage tensors_;
  std::vector<Copy> deferred_;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_SNAPSHOT_H_
