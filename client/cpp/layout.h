// A rank's own description of its state, checked and serialized once, then used
// for as many saves or loads as it stays the same.
#ifndef CKPTD_CLIENT_CPP_LAYOUT_H_
#define CKPTD_CLIENT_CPP_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptd/v1/node.pb.h"
#include "storage/layout/box.h"

namespace ckptd {

// Immutable, so safe from any thread.
class ClientLayout {
 public:
  // What the other classes need to know of a shard, in the order of the message.
  struct Shard {
    Box box;                     // in the tensor's coordinates
    uint64_t element_bytes = 0;  // of one element
  };

  // INVALID_ARGUMENT, naming the tensor, for a shape, box or data type that can't be.
  static absl::StatusOr<std::shared_ptr<const ClientLayout>> Create(v1::Layout message);

  const v1::Layout& message() const { return message_; }
  const std::string& serialized() const { return serialized_; }
  const std::string& fingerprint() const { return fingerprint_; }  // SHA-256 of serialized()
  const std::vector<Shard>& shards() const { return shards_; }
  // Small tensors: their dense size in bytes.
  const std::vector<uint64_t>& small_bytes() const { return small_bytes_; }
  // Small tensors: the earlier one whose memory each shares.
  const std::vector<std::optional<size_t>>& small_alias_of() const { return small_alias_of_; }

 private:
  ClientLayout() = default;

  v1::Layout message_;
  std::string serialized_;
  std::string fingerprint_;
  std::vector<Shard> shards_;
  std::vector<uint64_t> small_bytes_;
  std::vector<std::optional<size_t>> small_alias_of_;
};

// 32 raw bytes.
std::string Sha256(const void* data, size_t size_bytes);

// A name for a message: printable, and cut where it is very long.
std::string Printable(const std::string& name);

// A shape or box as the wire has it.
Extents ToExtents(const google::protobuf::RepeatedField<uint64_t>& field);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_LAYOUT_H_
