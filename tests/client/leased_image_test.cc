#include "client/cpp/leased_image.h"

#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "tests/catch.h"
#include "tests/client/memfd.h"

namespace ckptd {
namespace {

constexpr uint64_t kSlabBytes = 8192;

// Two slabs of 8 KiB, as a session would have them.
class Slabs {
 public:
  Slabs() {
    for (const uint64_t id : {1, 2}) {
      const UniqueFd memfd = NewMemfd(kSlabBytes, F_SEAL_SHRINK | F_SEAL_GROW);
      slabs_[id] = *SlabMapping::Map(memfd.get(), kSlabBytes);
    }
  }

  absl::StatusOr<std::shared_ptr<const SlabMapping>> Find(uint64_t id) const {
    const auto found = slabs_.find(id);
    if (found == slabs_.end()) return absl::NotFoundError("no such slab");
    return found->second;
  }

  std::byte* At(uint64_t id, uint64_t offset) const {
    return slabs_.at(id)->Range(offset, 1)->data();
  }

 private:
  std::map<uint64_t, std::shared_ptr<const SlabMapping>> slabs_;
};

void AddSegment(v1::Lease& lease, uint64_t slab, uint64_t slab_offset, uint64_t length) {
  uint64_t covered = 0;
  for (const v1::Segment& segment : lease.segments()) covered += segment.length_bytes();
  v1::Segment* segment = lease.add_segments();
  segment->set_slab_id(slab);
  segment->set_slab_offset(slab_offset);
  segment->set_image_offset(covered);
  segment->set_length_bytes(length);
}

// 6,000 bytes: 4 KiB at the end of slab 1, the rest in the middle of slab 2.
v1::Lease TwoSegments() {
  v1::Lease lease;
  lease.set_image_bytes(6000);
  AddSegment(lease, 1, 4096, 4096);
  AddSegment(lease, 2, 1024, 4096);
  return lease;
}

TEST_CASE("a box is written densely across the segments of its lease") {
  const Slabs slabs;
  const auto find = [&](uint64_t id) { return slabs.Find(id); };
  const auto image = LeasedImage::Map(TwoSegments(), find);
  REQUIRE(image.ok());
  // A transposed view: element (i, j) of a 3 x 5 box lies at data[j * 3 + i].
  std::vector<int32_t> data(15);
  std::iota(data.begin(), data.end(), 0);
  const StridedMemory memory{
      reinterpret_cast<std::byte*>(data.data()), {{0, 0}, {3, 5}}, Extents{1, 3}};
  const Box part{{1, 1}, {2, 4}};
  // Six bytes before the border: the second element is cut in two.
  REQUIRE(image->WriteBox(memory, part, 4, 4096 - 6).ok());
  std::vector<int32_t> written(8);
  std::memcpy(written.data(), slabs.At(1, 8192 - 6), 6);
  std::memcpy(reinterpret_cast<char*>(written.data()) + 6, slabs.At(2, 1024), 32 - 6);
  CHECK(written == std::vector<int32_t>{4, 7, 10, 13, 5, 8, 11, 14});
}

TEST_CASE("what would leave the lease is refused and nothing is written") {
  const Slabs slabs;
  const auto image = LeasedImage::Map(TwoSegments(), [&](uint64_t id) { return slabs.Find(id); });
  REQUIRE(image.ok());
  const std::vector<std::byte> bytes(10, std::byte{1});
  CHECK(absl::IsOutOfRange(image->Write(bytes, 5995)));
  CHECK(absl::IsOutOfRange(image->Write(bytes, UINT64_MAX - 4)));
  CHECK(*slabs.At(2, 1024 + 5995 - 4096) == std::byte{0});
  CHECK(image->Write(bytes, 5990).ok());
}

TEST_CASE("a lease of a part of the image takes what lies in that part, and says which it is") {
  const Slabs slabs;
  const auto find = [&](uint64_t id) { return slabs.Find(id); };
  v1::Lease later = TwoSegments();
  later.set_image_bytes(100'000);
  later.mutable_segments(0)->set_image_offset(40'960);
  later.mutable_segments(1)->set_image_offset(40'960 + 4096);
  const auto image = LeasedImage::Map(later, find);
  REQUIRE(image.ok());
  CHECK_FALSE(image->is_whole());
  CHECK((image->Holds(40'960, 8192) && image->Holds(40'960 + 8192, 0)));
  CHECK_FALSE(
      (image->Holds(40'959, 1) || image->Holds(40'961, 8192) || image->Holds(0, UINT64_MAX)));
  CHECK((image->begin() == 40'960 && image->end() == 40'960 + 8192));
  const std::vector<std::byte> bytes(10, std::byte{1});
  CHECK(absl::IsOutOfRange(image->Write(bytes, 40'955)));
  CHECK(absl::IsOutOfRange(image->Write(bytes, 40'960 + 8187)));
  CHECK(image->Write(bytes, 40'960 + 4091).ok());
  CHECK(*slabs.At(1, 8191) == std::byte{1});
  CHECK(*slabs.At(2, 1024) == std::byte{1});
  CHECK(LeasedImage::Map(TwoSegments(), find)->is_whole());
}

TEST_CASE("a lease with a hole, or outside its slab, is refused") {
  const Slabs slabs;
  const auto find = [&](uint64_t id) { return slabs.Find(id); };
  v1::Lease hole = TwoSegments();
  hole.mutable_segments(1)->set_image_offset(4100);
  CHECK(absl::IsDataLoss(LeasedImage::Map(hole, find).status()));
  v1::Lease outside = TwoSegments();
  outside.mutable_segments(1)->set_slab_offset(kSlabBytes - 4);
  CHECK(absl::IsOutOfRange(LeasedImage::Map(outside, find).status()));
}

TEST_CASE("a slab that may shrink, or is shorter than announced, is not mapped") {
  const UniqueFd unsealed = NewMemfd(kSlabBytes, 0);
  CHECK(absl::IsDataLoss(SlabMapping::Map(unsealed.get(), kSlabBytes).status()));
  const UniqueFd sealed = NewMemfd(kSlabBytes, F_SEAL_SHRINK);
  CHECK(absl::IsDataLoss(SlabMapping::Map(sealed.get(), 2 * kSlabBytes).status()));
  CHECK(SlabMapping::Map(sealed.get(), kSlabBytes).ok());
}

}  // namespace
}  // namespace ckptd
