// A rank's layout, checked: everything behind this border may be relied on.
#ifndef CKPTD_DAEMON_NODE_CHECKED_LAYOUT_H_
#define CKPTD_DAEMON_NODE_CHECKED_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptd/v1/node.pb.h"
#include "storage/layout/box.h"
#include "storage/layout/data_type.h"

namespace ckptd {

struct CheckedShard {
  std::string name;
  DataType data_type = DataType::kUnspecified;
  Extents shape;
  Box box;
};

// A small plain tensor, or (is_value) a value, whose type is bytes and whose
// length comes with each save.
struct CheckedSmall {
  std::string name;
  bool is_value = false;
  DataType data_type = DataType::kUnspecified;
  Extents shape;
  uint64_t size_bytes = 0;  // of a tensor
  // An earlier small tensor of the same type and shape, whose memory it shares.
  std::optional<uint32_t> alias_of;
};

// Immutable.
struct CheckedLayout {
  std::string fingerprint;  // SHA-256 of `serialized`
  std::string serialized;
  std::vector<CheckedShard> shards;
  std::vector<CheckedSmall> small;  // small tensors, then values: a save's order of contents
};

using CheckedLayoutPtr = std::shared_ptr<const CheckedLayout>;

// INVALID_ARGUMENT, naming the entry, for: bytes that are not the fingerprint's,
// names that are no names or given twice, unknown types, shapes and boxes that
// don't fit, more than kMostLayoutEntries entries.
absl::StatusOr<CheckedLayoutPtr> CheckSaveLayout(std::string serialized,
                                                 const std::string& fingerprint);
// As above; every tensor is a shard.
absl::StatusOr<CheckedLayoutPtr> CheckLoadLayout(const v1::Layout& layout);

Extents ToExtents(const google::protobuf::RepeatedField<uint64_t>& numbers);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_CHECKED_LAYOUT_H_
