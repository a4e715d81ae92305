#include "client/cpp/c_convert.h"

#include <array>
#include <cmath>
#include <utility>

namespace ckptd {
namespace {

constexpr size_t kLongestObserverMessage = 4096;

// The two callbacks of the C ABI as an observer.
class CallbackObserver : public SnapshotObserver {
 public:
  CallbackObserver(ckptd_before_copy before, ckptd_after_copy after, uint64_t context)
      : before_(before), after_(after), context_(context) {}

  void BeforeDeferredCopy(size_t shard) override {
    if (before_ != nullptr) before_(context_, shard);
  }

  absl::Status AfterLastCopy() override {
    if (after_ == nullptr) return absl::OkStatus();
    std::array<char, kLongestObserverMessage> message;
    const uint64_t size = after_(context_, message.data(), message.size());
    if (size == 0) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::string_view(message.data(), std::min<uint64_t>(size, message.size())));
  }

 private:
  const ckptd_before_copy before_;
  const ckptd_after_copy after_;
  const uint64_t context_;
};

template <typename Field>
void Append(const int64_t* values, uint32_t count, Field* field) {
  field->Reserve(static_cast<int>(count));
  for (uint32_t i = 0; i < count; ++i) field->Add(static_cast<uint64_t>(values[i]));
}

// Memory at `address` that holds `box`, taking its strides from the front of *strides.
StridedMemory TakeMemory(uint64_t address, Box box, const int64_t** strides) {
  const size_t dimensions = box.lengths.size();
  StridedMemory memory{reinterpret_cast<std::byte*>(address), std::move(box),
                       Extents(*strides, *strides + dimensions)};
  *strides += dimensions;
  return memory;
}

}  // namespace

std::string ToString(ckptd_string text) { return std::string(text.data, text.size); }

std::string NameAt(const ckptd_names& names, uint64_t index) {
  const uint64_t begin = index == 0 ? 0 : names.ends[index - 1];
  return std::string(names.bytes + begin, names.ends[index] - begin);
}

absl::Duration ToDuration(double seconds) {
  return std::isnan(seconds) ? absl::ZeroDuration() : absl::Seconds(seconds);
}

ClientOptions ToOptions(const ckptd_client_options& options) {
  return ClientOptions{.socket_dir = ToString(options.socket_dir),
                       .store = ToString(options.store),
                       .rank = options.rank,
                       .world_size = options.world_size,
                       .local_world_size = options.local_world_size,
                       .run_token = ToString(options.run_token),
                       .reader = options.reader != 0,
                       .join_timeout = ToDuration(options.join_timeout_seconds)};
}

v1::Layout ToLayout(const ckptd_layout_spec& spec) {
  v1::Layout layout;
  layout.mutable_shards()->Reserve(static_cast<int>(spec.shard_names.count));
  size_t at = 0;
  for (uint64_t i = 0; i < spec.shard_names.count; ++i) {
    const uint32_t dimensions = spec.shard_dimensions[i];
    v1::Shard* shard = layout.add_shards();
    shard->set_name(NameAt(spec.shard_names, i));
    shard->set_data_type(static_cast<v1::DataType>(spec.shard_data_types[i]));
    Append(spec.shard_shapes + at, dimensions, shard->mutable_shape());
    Append(spec.shard_offsets + at, dimensions, shard->mutable_offsets());
    Append(spec.shard_lengths + at, dimensions, shard->mutable_lengths());
    const int64_t alias = spec.shard_alias_of[i];
    if (alias >= 0) shard->set_alias_of(NameAt(spec.shard_names, static_cast<uint64_t>(alias)));
    at += dimensions;
  }
  at = 0;
  for (uint64_t i = 0; i < spec.small_names.count; ++i) {
    v1::SmallTensor* small = layout.add_small_tensors();
    small->set_name(NameAt(spec.small_names, i));
    small->set_data_type(static_cast<v1::DataType>(spec.small_data_types[i]));
    Append(spec.small_shapes + at, spec.small_dimensions[i], small->mutable_shape());
    const int64_t alias = spec.small_alias_of[i];
    if (alias >= 0) small->set_alias_of(NameAt(spec.small_names, static_cast<uint64_t>(alias)));
    at += spec.small_dimensions[i];
  }
  for (uint64_t i = 0; i < spec.value_names.count; ++i) {
    layout.add_values(NameAt(spec.value_names, i));
  }
  return layout;
}

SaveRequest ToSaveRequest(const ckptd_save_request& request,
                          std::shared_ptr<const ClientLayout> layout) {
  SaveRequest save;
  save.job = ToString(request.job);
  save.step = request.step;
  const int64_t* strides = request.shard_strides;
  const size_t shards = layout->shards().size();
  save.shards.reserve(shards);
  save.deferred.reserve(shards);
  for (size_t i = 0; i < shards; ++i) {
    save.shards.push_back(TakeMemory(request.shard_data[i], layout->shards()[i].box, &strides));
    save.deferred.push_back(request.shard_deferred[i] != 0);
  }
  strides = request.small_strides;
  for (size_t i = 0; i < layout->small_bytes().size(); ++i) {
    Box whole = WholeBox(ToExtents(layout->message().small_tensors(static_cast<int>(i)).shape()));
    save.small_tensors.push_back(TakeMemory(request.small_data[i], std::move(whole), &strides));
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(request.value_bytes);
  uint64_t begin = 0;
  for (int i = 0; i < layout->message().values_size(); ++i) {
    save.values.emplace_back(bytes + begin, request.value_ends[i] - begin);
    begin = request.value_ends[i];
  }
  save.overwrite = request.overwrite != 0;
  for (uint64_t i = 0; i < request.tag_keys.count; ++i) {
    save.tags[NameAt(request.tag_keys, i)] = NameAt(request.tag_values, i);
  }
  save.timeout = ToDuration(request.timeout_seconds);
  save.started = absl::Now() - ToDuration(request.already_blocked_seconds);
  save.observer =
      std::make_shared<CallbackObserver>(request.before_copy, request.after_copy, request.context);
  save.layout = std::move(layout);
  return save;
}

LoadRequest ToLoadRequest(const ckptd_load_request& request,
                          std::shared_ptr<const ClientLayout> layout) {
  LoadRequest load;
  load.job = ToString(request.job);
  if (request.latest != 0) {
    load.selector.set_latest(true);
  } else {
    load.selector.set_step(request.step);
  }
  load.layout = std::move(layout);
  load.options.set_allow_missing(request.allow_missing != 0);
  load.options.set_allow_extra(request.allow_extra != 0);
  load.options.set_allow_cast(request.allow_cast != 0);
  load.options.set_per_rank_rule(static_cast<v1::PerRankRule>(request.per_rank_rule));
  load.timeout = ToDuration(request.timeout_seconds);
  return load;
}

}  // namespace ckptd
