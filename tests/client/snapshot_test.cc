#include "client/cpp/snapshot.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/catch.h"
#include "tests/client/memfd.h"

namespace ckptd {
namespace {

constexpr uint64_t kHeaderBytes = 4096;
constexpr std::byte kUnwritten{0xEE};

struct Tensor {
  std::vector<std::byte> bytes;
  bool deferred;
};

Tensor NewTensor(uint64_t size, std::byte value, bool deferred) {
  return {std::vector<std::byte>(size, value), deferred};
}

// A node that leases the image of a rank's tensors, packed behind a header, window by window,
// and keeps what was copied. All windows are the same memory: who writes late spoils the next.
class WindowedNode {
 public:
  WindowedNode(std::vector<Tensor>& tensors, uint64_t window_bytes) {
    v1::Layout layout;
    uint64_t end = kHeaderBytes;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const uint64_t size = tensors[i].bytes.size();
      v1::Shard* shard = layout.add_shards();
      shard->set_name(std::to_string(i));
      shard->set_data_type(v1::DATA_TYPE_U8);
      shard->add_shape(size);
      shard->add_offsets(0);
      shard->add_lengths(size);
      const Box box{{0}, {static_cast<int64_t>(size)}};
      placements_.push_back({i, box, end});
      request_.shards.push_back({tensors[i].bytes.data(), box, Extents{1}});
      request_.deferred.push_back(tensors[i].deferred);
      end += size;
    }
    request_.layout = *ClientLayout::Create(layout);
    image_.resize(end);
    window_bytes_ = std::min(window_bytes, (end + 4095) / 4096 * 4096);
    const UniqueFd memfd = NewMemfd(window_bytes_, F_SEAL_SHRINK | F_SEAL_GROW);
    slab_ = *SlabMapping::Map(memfd.get(), window_bytes_);
    ClearWindow();
  }

  absl::StatusOr<Snapshot> Start() {
    v1::BeginSaveResponse response;
    *response.mutable_tensors() = Window();
    return Snapshot::Start(
        request_, SmallContents(request_), response, placements_,
        [this](uint64_t) { return slab_; },
        [this](uint64_t copied_bytes) { return Extend(copied_bytes); });
  }

  absl::StatusOr<LeasedImage> Extend(uint64_t copied_bytes) {
    if (fails_at_ == extensions_) return absl::AbortedError("the attempt was given up");
    ++extensions_;
    TakeWindow();
    begin_ += window_bytes_;
    if (copied_bytes != begin_) return absl::InvalidArgumentError("not all was copied");
    return LeasedImage::Map(Window(), [this](uint64_t) { return slab_; });
  }

  // The snapshot has ended: is the image what the tensors held at first?
  bool HasAllOf(const std::vector<Tensor>& expected) {
    TakeWindow();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (!std::equal(expected[i].bytes.begin(), expected[i].bytes.end(),
                      image_.begin() + static_cast<int64_t>(placements_[i].image_offset))) {
        return false;
      }
    }
    return true;
  }

  std::byte AtInWindow(uint64_t image_offset) const { return window()[image_offset - begin_]; }
  int extensions() const { return extensions_; }
  void FailAt(int extension) { fails_at_ = extension; }

 private:
  std::span<std::byte> window() const { return *slab_->Range(0, window_bytes_); }
  void ClearWindow() { std::fill(window().begin(), window().end(), kUnwritten); }

  void TakeWindow() {
    const uint64_t size = std::min<uint64_t>(window_bytes_, image_.size() - begin_);
    std::memcpy(image_.data() + begin_, window().data(), size);
    ClearWindow();
  }

  v1::Lease Window() const {
    v1::Lease lease;
    lease.set_image_bytes(image_.size());
    v1::Segment* segment = lease.add_segments();
    segment->set_image_offset(begin_);
    segment->set_length_bytes(
        std::min<uint64_t>(window_bytes_, (image_.size() - begin_ + 4095) / 4096 * 4096));
    return lease;
  }

  SaveRequest request_;
  std::vector<PlacedBox> placements_;
  std::vector<std::byte> image_;
  std::shared_ptr<const SlabMapping> slab_;
  uint64_t window_bytes_ = 0;
  uint64_t begin_ = 0;
  int extensions_ = 0;
  int fails_at_ = -1;
};

class Told : public SnapshotObserver {
 public:
  void BeforeDeferredCopy(size_t shard) override { shards.push_back(shard); }
  absl::Status AfterLastCopy() override { return absl::OkStatus(); }
  std::vector<size_t> shards;
};

// As training may, as soon as save() has returned.
void ChangeEager(std::vector<Tensor>& tensors) {
  for (Tensor& tensor : tensors) {
    if (!tensor.deferred) std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0});
  }
}

// The image is then what the tensors hold now. The shards whose copies were told of.
std::vector<size_t> CopyRestWhileTraining(WindowedNode& node, Snapshot& snapshot,
                                          std::vector<Tensor>& tensors) {
  const std::vector<Tensor> expected = tensors;
  ChangeEager(tensors);
  Told told;
  REQUIRE(
      snapshot.CopyDeferred(told, [&](uint64_t copied_bytes) { return node.Extend(copied_bytes); })
          .ok());
  CHECK(node.HasAllOf(expected));
  return told.shards;
}

TEST_CASE("what isn't deferred and lies in the present window is written there at once") {
  std::vector<Tensor> tensors = {NewTensor(5000, std::byte{1}, true),
                                 NewTensor(3000, std::byte{2}, false),
                                 NewTensor(90'000, std::byte{3}, true)};
  WindowedNode node(tensors, 16'384);
  absl::StatusOr<Snapshot> snapshot = node.Start();
  REQUIRE(snapshot.ok());
  CHECK(node.AtInWindow(kHeaderBytes + 5000) == std::byte{2});
  CHECK(node.AtInWindow(kHeaderBytes + 7999) == std::byte{2});
  CHECK(node.AtInWindow(kHeaderBytes) == kUnwritten);
  const std::vector<size_t> told = CopyRestWhileTraining(node, *snapshot, tensors);
  CHECK(told == std::vector<size_t>{0, 2});
}

TEST_CASE("what isn't deferred and lies behind the present window is kept until its own comes") {
  std::vector<Tensor> tensors = {NewTensor(9000, std::byte{1}, true),
                                 NewTensor(8000, std::byte{2}, false),  // across the border
                                 NewTensor(70'000, std::byte{3}, true),
                                 NewTensor(40'000, std::byte{4}, false)};
  WindowedNode node(tensors, 16'384);
  absl::StatusOr<Snapshot> snapshot = node.Start();
  REQUIRE(snapshot.ok());
  CHECK(node.extensions() == 0);
  const std::vector<size_t> told = CopyRestWhileTraining(node, *snapshot, tensors);
  CHECK(told == std::vector<size_t>{0, 2});  // our own memory is nobody's concern
}

// What is not deferred in two parts around one that is, then one that is.
std::vector<Tensor> MuchThatIsNotDeferred(uint64_t bytes) {
  return {NewTensor(9000, std::byte{1}, true), NewTensor(bytes / 2, std::byte{2}, false),
          NewTensor(5000, std::byte{3}, true), NewTensor(bytes - bytes / 2, std::byte{4}, false),
          NewTensor(3'000'000, std::byte{5}, true)};
}

TEST_CASE("as much as may be is kept in the trainer's memory, and save() waits for no window") {
  std::vector<Tensor> tensors = MuchThatIsNotDeferred(kMostPrivateBytes);
  WindowedNode node(tensors, 1 << 20);
  absl::StatusOr<Snapshot> snapshot = node.Start();
  REQUIRE(snapshot.ok());
  CHECK(node.extensions() == 0);
  const std::vector<size_t> told = CopyRestWhileTraining(node, *snapshot, tensors);
  CHECK(told == std::vector<size_t>{0, 2, 4});
}

TEST_CASE("more than that goes through the windows before save() returns, and only up to its end") {
  std::vector<Tensor> tensors = MuchThatIsNotDeferred(kMostPrivateBytes + 1);
  WindowedNode node(tensors, 1 << 20);
  absl::StatusOr<Snapshot> snapshot = node.Start();
  REQUIRE(snapshot.ok());
  CHECK(node.extensions() == 64);
  const std::vector<size_t> told = CopyRestWhileTraining(node, *snapshot, tensors);
  CHECK(node.extensions() == 66);
  CHECK(told == std::vector<size_t>{4});  // of those before it save() had read already
}

TEST_CASE("a window that doesn't come while save() waits for it is the save's error") {
  std::vector<Tensor> tensors = MuchThatIsNotDeferred(kMostPrivateBytes + 1);
  WindowedNode node(tensors, 1 << 20);
  node.FailAt(3);
  CHECK(node.Start().status() == absl::AbortedError("the attempt was given up"));
}

TEST_CASE("of an image that is leased as a whole nothing that isn't deferred is left to copy") {
  std::vector<Tensor> tensors = {NewTensor(9000, std::byte{1}, true),
                                 NewTensor(kMostPrivateBytes + 1, std::byte{2}, false)};
  WindowedNode node(tensors, UINT64_MAX - 4096);
  absl::StatusOr<Snapshot> snapshot = node.Start();
  REQUIRE(snapshot.ok());
  const std::vector<size_t> told = CopyRestWhileTraining(node, *snapshot, tensors);
  CHECK(told == std::vector<size_t>{0});
}

}  // namespace
}  // namespace ckptd
