// Copying one rank's part of a save into its leases.
#ifndef CKPTD_CLIENT_CPP_SNAPSHOT_H_
#define CKPTD_CLIENT_CPP_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
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

// Gives back the tensor image's bytes before `copied_bytes` and answers with the next ones.
using ExtendLease = absl::FunctionRef<absl::StatusOr<LeasedImage>(uint64_t copied_bytes)>;

// The most bytes of one save that are kept in memory of the trainer, which has little to
// spare beside its state: as many as may be copied before save() returns without a warning.
inline constexpr uint64_t kMostPrivateBytes = uint64_t{64} << 20;

// The copying itself, in two parts.
//
// Where the lease is only the first part of the image, what must be copied before save()
// returns may have its place in a later one. Up to kMostPrivateBytes of it are copied to
// memory of this process; when there is more, save() goes through the image itself, up to
// the last of it, and takes as long as storage does.
class Snapshot {
 public:
  // `placements` are of request.layout. Copies the small contents and whatever is
  // not deferred before it returns. An error of `extend` is its own.
  static absl::StatusOr<Snapshot> Start(const SaveRequest& request, const SmallContents& small,
                                        const v1::BeginSaveResponse& response,
                                        const std::vector<PlacedBox>& placements,
                                        LeasedImage::FindSlab find_slab, ExtendLease extend);

  // Copies the rest, telling `observer` before each read of the caller's memory. Once.
  [[nodiscard]] absl::Status CopyDeferred(SnapshotObserver& observer, ExtendLease extend);

 private:
  struct Copy {
    StridedMemory memory;
    PlacedBox placed;
    uint64_t element_bytes;
    bool deferred;
    std::unique_ptr<std::byte[]> owned;  // the memory, where it is ours

    uint64_t size_bytes() const {
      return static_cast<uint64_t>(Volume(placed.box)) * element_bytes;
    }
  };

  // Has `copy` its place in what is leased now?
  bool IsLeased(const Copy& copy) const;
  uint64_t EagerBytesNotLeased() const;
  // The two ways to copy what is not deferred.
  absl::Status CopyEager();
  absl::Status CopyThroughLastEager(ExtendLease extend);
  // Replaces the memory by a dense copy of what is there now.
  static void MakePrivate(Copy& copy);
  absl::Status CopyInParts(const Copy& copy, ExtendLease extend);

  LeasedImage tensors_;
  std::vector<Copy> left_;  // by image offset
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_SNAPSHOT_H_
