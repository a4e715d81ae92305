#include "daemon/node/checked_layout.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/node/limits.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/text.h"

namespace ckptd {
namespace {

absl::StatusOr<DataType> CheckType(int number, const std::string& name) {
  std::optional<DataType> type = DataTypeFromNumber(number);
  if (type.has_value()) return *type;
  return absl::InvalidArgumentError(
      absl::StrCat("tensor ", Printable(name), " has the unknown data type ", number));
}

absl::StatusOr<CheckedShard> CheckShard(const v1::Shard& shard) {
  if (absl::Status status = ValidateEntryName(shard.name()); !status.ok()) return status;
  absl::StatusOr<DataType> type = CheckType(shard.data_type(), shard.name());
  if (!type.ok()) return type.status();
  CheckedShard checked{.name = shard.name(),
                       .data_type = *type,
                       .shape = ToExtents(shard.shape()),
                       .box = {ToExtents(shard.offsets()), ToExtents(shard.lengths())}};
  absl::Status status = ValidateShape(checked.shape, ElementBytes(*type));
  if (status.ok()) status = ValidateBox(checked.box, checked.shape, ElementBytes(*type));
  if (!status.ok()) return Annotate(status, absl::StrCat("tensor ", Printable(shard.name())));
  return checked;
}

absl::StatusOr<CheckedSmall> CheckSmallTensor(const v1::SmallTensor& tensor) {
  if (absl::Status status = ValidateEntryName(tensor.name()); !status.ok()) return status;
  absl::StatusOr<DataType> type = CheckType(tensor.data_type(), tensor.name());
  if (!type.ok()) return type.status();
  CheckedSmall checked{
      .name = tensor.name(), .data_type = *type, .shape = ToExtents(tensor.shape())};
  absl::Status status = ValidateShape(checked.shape, ElementBytes(*type));
  if (!status.ok()) return Annotate(status, absl::StrCat("tensor ", Printable(tensor.name())));
  checked.size_bytes = static_cast<uint64_t>(Volume(checked.shape)) * ElementBytes(*type);
  return checked;
}

absl::Status CheckNamesOnce(const CheckedLayout& layout) {
  absl::flat_hash_set<absl::string_view> tensors, small;
  for (const CheckedShard& shard : layout.shards) tensors.insert(shard.name);
  for (const CheckedSmall& entry : layout.small) {
    if (!small.insert(entry.name).second || tensors.contains(entry.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the name ", Printable(entry.name), " is given twice"));
    }
  }
  return absl::OkStatus();
}

// Before the values are there: indices in `layout` and `checked.small` are the same.
absl::Status CheckSmallAliases(const v1::Layout& layout, CheckedLayout& checked) {
  absl::flat_hash_map<absl::string_view, uint32_t> earlier;
  for (uint32_t i = 0; i < checked.small.size(); ++i) {
    CheckedSmall& small = checked.small[i];
    const std::string& alias = layout.small_tensors(static_cast<int>(i)).alias_of();
    if (alias.empty()) {
      earlier.emplace(small.name, i);
      continue;
    }
    const auto target = earlier.find(alias);
    if (target == earlier.end() || checked.small[target->second].data_type != small.data_type ||
        checked.small[target->second].shape != small.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Printable(small.name), " can't be an alias of ", Printable(alias),
          ", which is no earlier small tensor of the same type and shape with memory of its own"));
    }
    small.alias_of = target->second;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<CheckedLayout>> Check(const v1::Layout& layout) {
  const size_t entries =
      size_t{0} + layout.shards_size() + layout.small_tensors_size() + layout.values_size();
  if (entries > kMostLayoutEntries) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a layout of ", entries, " tensors and values; one rank may have ", kMostLayoutEntries));
  }
  auto checked = std::make_shared<CheckedLayout>();
  checked->shards.reserve(layout.shards_size());
  for (const v1::Shard& shard : layout.shards()) {
    absl::StatusOr<CheckedShard> one = CheckShard(shard);
    if (!one.ok()) return one.status();
    checked->shards.push_back(*std::move(one));
  }
  for (const v1::SmallTensor& tensor : layout.small_tensors()) {
    absl::StatusOr<CheckedSmall> one = CheckSmallTensor(tensor);
    if (!one.ok()) return one.status();
    checked->small.push_back(*std::move(one));
  }
  if (absl::Status status = CheckSmallAliases(layout, *checked); !status.ok()) return status;
  for (const std::string& value : layout.values()) {
    if (absl::Status status = ValidateEntryName(value); !status.ok()) return status;
    checked->small.push_back({.name = value, .is_value = true, .data_type = DataType::kU8});
  }
  if (absl::Status status = CheckNamesOnce(*checked); !status.ok()) return status;
  return checked;
}

}  // namespace

Extents ToExtents(const google::protobuf::RepeatedField<uint64_t>& numbers) {
  Extents extents;
  // What does not fit becomes negative, which every check refuses.
  for (uint64_t number : numbers) extents.push_back(static_cast<int64_t>(number));
  return extents;
}

absl::StatusOr<CheckedLayoutPtr> CheckSaveLayout(std::string serialized,
                                                 const std::string& fingerprint) {
  if (Sha256Of(serialized) != fingerprint) {
    return absl::InvalidArgumentError("the fingerprint is not the SHA-256 of the layout");
  }
  v1::Layout layout;
  if (!layout.ParseFromString(serialized)) {
    return absl::InvalidArgumentError("the layout is no valid message");
  }
  absl::StatusOr<std::shared_ptr<CheckedLayout>> checked = Check(layout);
  if (!checked.ok()) return checked.status();
  (*checked)->fingerprint = fingerprint;
  (*checked)->serialized = std::move(serialized);
  return CheckedLayoutPtr(*std::move(checked));
}

absl::StatusOr<CheckedLayoutPtr> CheckLoadLayout(const v1::Layout& layout) {
  if (layout.small_tensors_size() > 0) {
    return absl::InvalidArgumentError("in a load every tensor is a shard, small or not");
  }
  absl::StatusOr<std::shared_ptr<CheckedLayout>> checked = Check(layout);
  if (!checked.ok()) return checked.status();
  return CheckedLayoutPtr(*std::move(checked));
}

}  // namespace ckptd
