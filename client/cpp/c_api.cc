// The C ABI over Client. Nothing but conversion: what can go wrong goes wrong behind it.
#include <google/protobuf/util/json_util.h>

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "client/cpp/c_convert.h"
#include "client/cpp/ckptd_client.h"
#include "client/cpp/client.h"
#include "client/cpp/fork_guard.h"
#include "proto/rpc/status.h"

struct ckptd_error {
  absl::Status status;
};
struct ckptd_text {
  std::string text;
};
struct ckptd_client {
  std::unique_ptr<ckptd::Client> client;
};
struct ckptd_layout {
  std::shared_ptr<const ckptd::ClientLayout> layout;
};
struct ckptd_save {
  std::shared_ptr<ckptd::SaveHandle> handle;
};
struct ckptd_load {
  std::shared_ptr<const ckptd::ClientLayout> layout;
  std::unique_ptr<ckptd::LoadHandle> handle;
  // What `plan` points into.
  std::vector<uint32_t> cast_shards;
  std::vector<uint8_t> cast_data_types;
  std::string missing_bytes;
  std::vector<uint64_t> missing_ends;
  std::vector<uint8_t> small_is_value;
  std::vector<uint32_t> small_index;
  std::vector<uint8_t> small_data_types;
  std::vector<uint64_t> small_bytes;
  std::vector<uint64_t> small_rank_ends;
  std::vector<uint32_t> small_ranks;
  ckptd_load_plan plan = {};
};

namespace {

using ckptd::InForkedChild;

// NULL for OK. Also turns an exception of the standard library, memory, into an error.
template <typename Body>
ckptd_error* Guard(Body body) {
  absl::Status status = ckptd::CheckNotForked();
  if (status.ok()) {
    try {
      status = body();
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("out of memory in the ckptd client");
    } catch (const std::exception& error) {
      status = absl::InternalError(error.what());
    }
  }
  return status.ok() ? nullptr : new ckptd_error{std::move(status)};
}

template <typename Object>
void Free(Object* object) {
  if (!InForkedChild()) delete object;
}

ckptd_string View(const std::string& text) { return {text.data(), text.size()}; }

void FillCasts(ckptd_load& load) {
  for (const ckptd::v1::CastShard& cast : load.handle->plan().casts()) {
    load.cast_shards.push_back(cast.shard());
    load.cast_data_types.push_back(static_cast<uint8_t>(cast.saved_data_type()));
  }
  load.plan.cast_count = load.cast_shards.size();
  load.plan.cast_shards = load.cast_shards.data();
  load.plan.cast_data_types = load.cast_data_types.data();
}

void FillMissing(ckptd_load& load) {
  for (const std::string& name : load.handle->plan().missing()) {
    load.missing_bytes += name;
    load.missing_ends.push_back(load.missing_bytes.size());
  }
  load.plan.missing = {load.missing_ends.size(), load.missing_bytes.data(),
                       load.missing_ends.data()};
}

void FillSmall(ckptd_load& load) {
  for (const ckptd::v1::SmallDelivery& small : load.handle->plan().small()) {
    const bool is_value = small.has_value();
    load.small_is_value.push_back(is_value ? 1 : 0);
    load.small_index.push_back(is_value ? small.value() : small.shard());
    load.small_data_types.push_back(static_cast<uint8_t>(small.saved_data_type()));
    load.small_bytes.push_back(small.size_bytes());
    load.small_ranks.insert(load.small_ranks.end(), small.saved_ranks().begin(),
                            small.saved_ranks().end());
    load.small_rank_ends.push_back(load.small_ranks.size());
  }
  load.plan.small_count = load.small_index.size();
  load.plan.small_is_value = load.small_is_value.data();
  load.plan.small_index = load.small_index.data();
  load.plan.small_data_types = load.small_data_types.data();
  load.plan.small_bytes = load.small_bytes.data();
  load.plan.small_rank_ends = load.small_rank_ends.data();
  load.plan.small_ranks = load.small_ranks.data();
}

// Indices from the node are checked here, so that a binding needn't.
absl::Status CheckPlan(const ckptd::v1::BeginLoadResponse& plan, const ckptd::v1::Layout& layout) {
  const auto shards = static_cast<uint32_t>(layout.shards_size());
  const auto values = static_cast<uint32_t>(layout.values_size());
  bool valid = true;
  for (const auto& cast : plan.casts()) valid = valid && cast.shard() < shards;
  for (const auto& small : plan.small()) {
    valid = valid && (small.has_value() ? small.value() < values : small.shard() < shards);
  }
  return valid ? absl::OkStatus()
               : absl::DataLossError("the node planned a load of what was not asked for");
}

std::vector<ckptd::LoadTarget> Targets(const ckptd::ClientLayout& layout,
                                       const uint64_t* shard_data, const int64_t* shard_strides,
                                       const uint8_t* shard_data_types) {
  std::vector<ckptd::LoadTarget> targets;
  targets.reserve(layout.shards().size());
  for (size_t i = 0; i < layout.shards().size(); ++i) {
    const ckptd::Box& box = layout.shards()[i].box;
    const size_t dimensions = box.lengths.size();
    targets.push_back({{reinterpret_cast<std::byte*>(shard_data[i]), box,
                        ckptd::Extents(shard_strides, shard_strides + dimensions)},
                       static_cast<ckptd::v1::DataType>(shard_data_types[i])});
    shard_strides += dimensions;
  }
  return targets;
}

}  // namespace

extern "C" {

int ckptd_abi_version(void) { return CKPTD_ABI_VERSION; }

int ckptd_error_code(const ckptd_error* error) { return static_cast<int>(error->status.code()); }

ckptd_string ckptd_error_message(const ckptd_error* error) {
  return {error->status.message().data(), error->status.message().size()};
}

void ckptd_error_free(ckptd_error* error) { delete error; }

ckptd_string ckptd_text_view(const ckptd_text* text) { return View(text->text); }

void ckptd_text_free(ckptd_text* text) { delete text; }

ckptd_error* ckptd_client_open(const ckptd_client_options* options, ckptd_client** client) {
  return Guard([&]() -> absl::Status {
    absl::StatusOr<std::unique_ptr<ckptd::Client>> opened =
        ckptd::Client::Open(ckptd::ToOptions(*options));
    if (!opened.ok()) return opened.status();
    *client = new ckptd_client{*std::move(opened)};
    return absl::OkStatus();
  });
}

ckptd_error* ckptd_client_close(ckptd_client* client) {
  return Guard([&]() -> absl::Status {
    client->client->Close();
    return absl::OkStatus();
  });
}

void ckptd_client_free(ckptd_client* client) { Free(client); }

ckptd_error* ckptd_client_interrupt(ckptd_client* client, uint32_t on) {
  return Guard([&]() -> absl::Status {
    client->client->SetInterrupted(on != 0);
    return absl::OkStatus();
  });
}

ckptd_error* ckptd_layout_create(const ckptd_layout_spec* spec, ckptd_layout** layout) {
  return Guard([&]() -> absl::Status {
    absl::StatusOr<std::shared_ptr<const ckptd::ClientLayout>> created =
        ckptd::ClientLayout::Create(ckptd::ToLayout(*spec));
    if (!created.ok()) return created.status();
    *layout = new ckptd_layout{*std::move(created)};
    return absl::OkStatus();
  });
}

void ckptd_layout_free(ckptd_layout* layout) { Free(layout); }

ckptd_error* ckptd_save_start(ckptd_client* client, const ckptd_save_request* request,
                              ckptd_save** save) {
  return Guard([&]() -> absl::Status {
    absl::StatusOr<std::shared_ptr<ckptd::SaveHandle>> started =
        client->client->Save(ckptd::ToSaveRequest(*request, request->layout->layout));
    if (!started.ok()) return started.status();
    *save = new ckptd_save{*std::move(started)};
    return absl::OkStatus();
  });
}

ckptd_error* ckptd_save_skip(ckptd_client* client, ckptd_string job) {
  return Guard([&]() -> absl::Status {
    client->client->SkipSave(ckptd::ToString(job));
    return absl::OkStatus();
  });
}

ckptd_error* ckptd_save_wait_snapshot(ckptd_save* save, double timeout_seconds) {
  return Guard([&] { return save->handle->WaitSnapshot(ckptd::ToDuration(timeout_seconds)); });
}

ckptd_error* ckptd_save_wait_durable(ckptd_save* save, double timeout_seconds) {
  return Guard([&] { return save->handle->WaitDurable(ckptd::ToDuration(timeout_seconds)); });
}

ckptd_error* ckptd_save_get_status(ckptd_save* save, ckptd_save_status* status,
                                   ckptd_text** message) {
  return Guard([&]() -> absl::Status {
    const absl::StatusOr<ckptd::v1::SaveStatus> now = save->handle->Status();
    if (!now.ok()) return now.status();
    *status = {static_cast<uint32_t>(now->phase()),
               now->error_code(),
               now->bytes(),
               now->snapshot_seconds(),
               now->persist_seconds(),
               now->durable_seconds()};
    *message = now->error_code() == 0 ? nullptr : new ckptd_text{now->error_message()};
    return absl::OkStatus();
  });
}

void ckptd_save_free(ckptd_save* save) { Free(save); }

ckptd_error* ckptd_load_begin(ckptd_client* client, const ckptd_load_request* request,
                              ckptd_load** load) {
  return Guard([&]() -> absl::Status {
    const std::shared_ptr<const ckptd::ClientLayout>& layout = request->layout->layout;
    absl::StatusOr<std::unique_ptr<ckptd::LoadHandle>> begun =
        client->client->Load(ckptd::ToLoadRequest(*request, layout));
    if (!begun.ok()) return begun.status();
    const ckptd::v1::BeginLoadResponse& plan = (*begun)->plan();
    if (absl::Status valid = CheckPlan(plan, layout->message()); !valid.ok()) return valid;
    auto made = std::make_unique<ckptd_load>();
    made->layout = layout;
    made->handle = *std::move(begun);
    made->plan.step = plan.step();
    made->plan.bytes = plan.bytes();
    made->plan.saved_world_size = plan.saved_world_size();
    FillCasts(*made);
    FillMissing(*made);
    FillSmall(*made);
    *load = made.release();
    return absl::OkStatus();
  });
}

const ckptd_load_plan* ckptd_load_get_plan(const ckptd_load* load) { return &load->plan; }

ckptd_error* ckptd_load_run(ckptd_load* load, const uint64_t* shard_data,
                            const int64_t* shard_strides, const uint8_t* shard_data_types) {
  return Guard([&] {
    return load->handle->Run(Targets(*load->layout, shard_data, shard_strides, shard_data_types));
  });
}

ckptd_string ckptd_load_small(const ckptd_load* load, uint64_t index) {
  const std::span<const std::byte> bytes = load->handle->small(index);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void ckptd_load_free(ckptd_load* load) { Free(load); }

ckptd_error* ckptd_list_checkpoints(ckptd_client* client, ckptd_string job, ckptd_text** json) {
  return Guard([&]() -> absl::Status {
    const absl::StatusOr<ckptd::v1::ListCheckpointsResponse> listed =
        client->client->ListCheckpoints(ckptd::ToString(job));
    if (!listed.ok()) return listed.status();
    google::protobuf::util::JsonPrintOptions options;
    options.always_print_primitive_fields = true;
    options.preserve_proto_field_names = true;
    auto text = std::make_unique<ckptd_text>();
    const auto printed = google::protobuf::util::MessageToJsonString(*listed, &text->text, options);
    if (!printed.ok()) return absl::InternalError(printed.ToString());
    *json = text.release();
    return absl::OkStatus();
  });
}

ckptd_error* ckptd_remove_checkpoint(ckptd_client* client, ckptd_string job, uint64_t step) {
  return Guard([&] { return client->client->RemoveCheckpoint(ckptd::ToString(job), step); });
}

}  // extern "C"
