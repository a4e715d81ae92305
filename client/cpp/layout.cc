#include "client/cpp/layout.h"

#include <openssl/sha.h>

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"
#include "storage/layout/data_type.h"

namespace ckptd {
namespace {

constexpr size_t kLongestNameShown = 200;
// Leaves room in the message for the small contents' hashes.
constexpr size_t kMaxLayoutBytes = kMaxTrainerMessageBytes / 2;

uint64_t ElementBytesOf(v1::DataType type) {
  return ElementBytes(static_cast<DataType>(static_cast<uint8_t>(type)));
}

absl::StatusOr<ClientLayout::Shard> CheckShard(const v1::Shard& shard) {
  const uint64_t element_bytes = ElementBytesOf(shard.data_type());
  if (element_bytes == 0) return absl::InvalidArgumentError("has no known data type");
  Box box{ToExtents(shard.offsets()), ToExtents(shard.lengths())};
  const Extents shape = ToExtents(shard.shape());
  if (absl::Status valid = ValidateBox(box, shape, element_bytes); !valid.ok()) return valid;
  return ClientLayout::Shard{std::move(box), element_bytes};
}

absl::StatusOr<uint64_t> CheckSmall(const v1::SmallTensor& small) {
  const uint64_t element_bytes = ElementBytesOf(small.data_type());
  if (element_bytes == 0) return absl::InvalidArgumentError("has no known data type");
  const Extents shape = ToExtents(small.shape());
  if (absl::Status valid = ValidateShape(shape, element_bytes); !valid.ok()) return valid;
  return static_cast<uint64_t>(Volume(shape)) * element_bytes;
}

// Of the small tensors. An alias stands behind what it shares, which is none itself.
absl::StatusOr<std::vector<std::optional<size_t>>> FindAliases(const v1::Layout& message) {
  absl::flat_hash_map<std::string, size_t> earlier;
  std::vector<std::optional<size_t>> aliases;
  for (const v1::SmallTensor& small : message.small_tensors()) {
    if (small.alias_of().empty()) {
      earlier.emplace(small.name(), aliases.size());
      aliases.push_back(std::nullopt);
      continue;
    }
    const auto target = earlier.find(small.alias_of());
    if (target == earlier.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Printable(small.name()), " is an alias of ",
                       Printable(small.alias_of()), ", which is no small tensor before it"));
    }
    aliases.push_back(target->second);
  }
  return aliases;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ClientLayout>> ClientLayout::Create(v1::Layout message) {
  auto layout = std::shared_ptr<ClientLayout>(new ClientLayout);
  layout->shards_.reserve(message.shards_size());
  for (const v1::Shard& shard : message.shards()) {
    absl::StatusOr<Shard> checked = CheckShard(shard);
    if (!checked.ok()) {
      return Annotate(checked.status(), absl::StrCat("tensor ", Printable(shard.name())));
    }
    layout->shards_.push_back(*std::move(checked));
  }
  for (const v1::SmallTensor& small : message.small_tensors()) {
    const absl::StatusOr<uint64_t> bytes = CheckSmall(small);
    if (!bytes.ok()) {
      return Annotate(bytes.status(), absl::StrCat("tensor ", Printable(small.name())));
    }
    layout->small_bytes_.push_back(*bytes);
  }
  absl::StatusOr<std::vector<std::optional<size_t>>> aliases = FindAliases(message);
  if (!aliases.ok()) return aliases.status();
  layout->small_alias_of_ = *std::move(aliases);
  layout->serialized_ = message.SerializeAsString();
  if (layout->serialized_.size() > kMaxLayoutBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this rank's part of the state takes ", layout->serialized_.size(),
                     " bytes to describe, above the limit of ", kMaxLayoutBytes, " bytes"));
  }
  layout->fingerprint_ = Sha256(layout->serialized_.data(), layout->serialized_.size());
  layout->message_ = std::move(message);
  return layout;
}

std::string Sha256(const void* data, size_t size_bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(static_cast<const unsigned char*>(data), size_bytes,
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string Printable(const std::string& name) {
  if (name.size() <= kLongestNameShown) return absl::Utf8SafeCHexEscape(name);
  return absl::StrCat(absl::Utf8SafeCHexEscape(name.substr(0, kLongestNameShown)), "... (",
                      name.size(), " bytes)");
}

Extents ToExtents(const google::protobuf::RepeatedField<uint64_t>& field) {
  Extents extents;
  extents.reserve(field.size());
  for (const uint64_t value : field) extents.push_back(static_cast<int64_t>(value));
  return extents;
}

}  // namespace ckptd
