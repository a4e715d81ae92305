#include "client/cpp/load_handle.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/node_link.h"
#include "proto/rpc/status.h"
#include "storage/layout/data_type.h"

namespace ckptd {
namespace {

constexpr absl::Duration kEndTimeout = absl::Seconds(30);
constexpr int kMostScatterThreads = 4;
constexpr size_t kScatterQueueLimit = 64;
// A value or per-rank tensor is small by definition; this stops nonsense.
constexpr uint64_t kLargestSmallBytes = uint64_t{1} << 32;

int ScatterThreads() {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  // The calling thread scatters too.
  return std::clamp(cores, 1, kMostScatterThreads) - 1;
}

// The bytes of [first_element, first_element + count) checked against the piece.
absl::Status CheckWindow(const v1::Window& window, const Box& piece, uint64_t element_bytes) {
  const bool whole_elements = element_bytes > 0 && window.length_bytes() % element_bytes == 0;
  if (!whole_elements || piece.offsets.size() != piece.lengths.size()) {
    return absl::DataLossError("the node sent a window that is no whole number of elements");
  }
  const Extents lengths = piece.lengths;
  if (absl::Status valid = ValidateShape(lengths, element_bytes); !valid.ok()) return valid;
  const uint64_t elements = static_cast<uint64_t>(Volume(piece));
  const uint64_t count = window.length_bytes() / element_bytes;
  if (window.first_element() > elements || count > elements - window.first_element()) {
    return absl::DataLossError("the node sent a window that leaves its piece");
  }
  return absl::OkStatus();
}

}  // namespace

LoadHandle::LoadHandle(std::shared_ptr<NodeConnection> connection, LoadRequest request,
                       v1::BeginLoadResponse plan, absl::Time deadline)
    : connection_(std::move(connection)),
      request_(std::move(request)),
      plan_(std::move(plan)),
      deadline_(deadline),
      scatterers_(ScatterThreads(), kScatterQueueLimit) {}

LoadHandle::~LoadHandle() {
  if (InForkedChild()) return;
  // The windows also come back when the session ends: nothing to do about an error.
  End(absl::CancelledError("the trainer gave the load up")).IgnoreError();
}

std::string LoadHandle::Describe() const {
  return absl::StrCat("loading step ", plan_.step(), " of job ", Printable(request_.job));
}

absl::Status LoadHandle::Run(std::span<const LoadTarget> targets) {
  absl::Status status = CheckNotForked();
  if (status.ok()) status = PrepareSmall();
  if (status.ok()) status = ReceiveAll(targets);
  if (IsConnectionLost(status)) {
    status = absl::AbortedError(absl::StrCat("the node daemon went away during the load (",
                                             status.message(), "); load again"));
  }
  // The bytes were there until the daemon says here that we still held them: it may have
  // stopped, or taken back what a process that slept too long did not return.
  const absl::Status ended = End(status);
  if (status.ok() && !ended.ok()) {
    status = absl::AbortedError(
        absl::StrCat("the node daemon took the bytes back before all were copied (",
                     ended.message(), "); what was loaded can't be relied on, load again"));
  }
  return Annotate(status, Describe());
}

absl::Status LoadHandle::PrepareSmall() {
  for (const v1::SmallDelivery& delivery : plan_.small()) {
    if (delivery.size_bytes() > kLargestSmallBytes) {
      return absl::DataLossError("the node announced a value of an impossible size");
    }
    small_.emplace_back(delivery.size_bytes());
  }
  return absl::OkStatus();
}

absl::Status LoadHandle::ReceiveAll(std::span<const LoadTarget> targets) {
  v1::NextWindowsRequest request;
  request.set_load_id(plan_.load_id());
  for (;;) {
    const absl::Duration left = deadline_ - absl::Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("not all bytes came within ", absl::FormatDuration(request_.timeout),
                       " from node ", connection_->node(), " (phase restore)"));
    }
    request.set_timeout_seconds(absl::ToDoubleSeconds(left));
    v1::NextWindowsResponse response;
    if (absl::Status next = connection_->NextWindows(request, &response, left); !next.ok()) {
      return next;
    }
    std::vector<absl::Status> scattered(response.windows_size());
    scatterers_.ForEach(scattered.size(), [&](size_t i) {
      scattered[i] = Scatter(response.windows(static_cast<int>(i)), targets);
    });
    for (const absl::Status& status : scattered) {
      if (!status.ok()) return status;
    }
    if (response.done()) return absl::OkStatus();
    request.clear_released_window_ids();
    for (const v1::Window& window : response.windows()) {
      request.add_released_window_ids(window.window_id());
    }
  }
}

absl::Status LoadHandle::Scatter(const v1::Window& window, std::span<const LoadTarget> targets) {
  const absl::StatusOr<std::shared_ptr<const SlabMapping>> slab =
      connection_->Slab(window.slab_id());
  if (!slab.ok()) return slab.status();
  const auto bytes = (*slab)->Range(window.slab_offset(), window.length_bytes());
  if (!bytes.ok()) return bytes.status();
  const uint64_t element_bytes = ElementBytes(static_cast<DataType>(window.data_type()));
  const Box piece{ToExtents(window.piece_offsets()), ToExtents(window.piece_lengths())};
  if (absl::Status valid = CheckWindow(window, piece, element_bytes); !valid.ok()) return valid;

  for (const uint32_t shard : window.shards()) {
    if (shard >= targets.size()) {
      return absl::DataLossError(absl::StrCat("the node sent bytes for unknown shard ", shard));
    }
    const LoadTarget& target = targets[shard];
    if (target.memory.data == nullptr) continue;
    if (target.data_type != window.data_type() ||
        target.memory.box.dimensions() != piece.dimensions()) {
      return absl::DataLossError(absl::StrCat(
          "the node sent bytes of another kind for tensor ",
          Printable(request_.layout->message().shards(static_cast<int>(shard)).name())));
    }
    ScatterWindow(*bytes, piece, static_cast<int64_t>(window.first_element()), element_bytes,
                  target.memory);
  }
  return CopySmall(window, *bytes, element_bytes);
}

absl::Status LoadHandle::CopySmall(const v1::Window& window, std::span<const std::byte> bytes,
                                   uint64_t element_bytes) {
  const uint64_t offset = window.first_element() * element_bytes;
  for (const uint32_t index : window.small()) {
    if (index >= small_.size() || offset > small_[index].size() ||
        bytes.size() > small_[index].size() - offset) {
      return absl::DataLossError("the node sent bytes for an unknown value");
    }
    if (!bytes.empty()) std::memcpy(small_[index].data() + offset, bytes.data(), bytes.size());
  }
  return absl::OkStatus();
}

absl::Status LoadHandle::End(const absl::Status& status) {
  if (std::exchange(ended_, true)) return absl::OkStatus();
  v1::EndLoadRequest request;
  request.set_load_id(plan_.load_id());
  if (!status.ok()) request.set_error(std::string(status.message()));
  return connection_->EndLoad(request, kEndTimeout);
}

}  // namespace ckptd
