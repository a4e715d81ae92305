#include "client/cpp/layout.h"

#include <cstdint>

#include "absl/strings/match.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

v1::Layout OneShard(uint64_t offset, uint64_t length) {
  v1::Layout layout;
  v1::Shard* shard = layout.add_shards();
  shard->set_name("layer.weight");
  shard->set_data_type(v1::DATA_TYPE_BF16);
  shard->add_shape(8);
  shard->add_offsets(offset);
  shard->add_lengths(length);
  return layout;
}

TEST_CASE("a layout knows its boxes, element sizes and a fingerprint of its bytes") {
  const auto layout = ClientLayout::Create(OneShard(2, 4));
  REQUIRE(layout.ok());
  REQUIRE((*layout)->shards().size() == 1);
  CHECK((*layout)->shards()[0].box == Box{{2}, {4}});
  CHECK((*layout)->shards()[0].element_bytes == 2);
  const std::string& bytes = (*layout)->serialized();
  CHECK((*layout)->fingerprint() == Sha256(bytes.data(), bytes.size()));
}

TEST_CASE("layouts that differ in one box have different fingerprints") {
  const auto a = ClientLayout::Create(OneShard(2, 4));
  const auto b = ClientLayout::Create(OneShard(2, 5));
  REQUIRE(a.ok());
  REQUIRE(b.ok());
  CHECK((*a)->fingerprint() != (*b)->fingerprint());
}

TEST_CASE("a box that leaves its tensor is refused, naming the tensor") {
  const auto layout = ClientLayout::Create(OneShard(6, 4));
  CHECK(absl::IsInvalidArgument(layout.status()));
  CHECK(absl::StrContains(layout.status().message(), "layer.weight"));
}

TEST_CASE("an unknown data type is refused, naming the tensor") {
  v1::Layout message = OneShard(0, 8);
  message.mutable_shards(0)->set_data_type(static_cast<v1::DataType>(200));
  const auto layout = ClientLayout::Create(message);
  CHECK(absl::IsInvalidArgument(layout.status()));
  CHECK(absl::StrContains(layout.status().message(), "layer.weight"));
}

TEST_CASE("small tensors have their dense sizes, scalars too") {
  v1::Layout message;
  v1::SmallTensor* small = message.add_small_tensors();
  small->set_data_type(v1::DATA_TYPE_F64);
  small = message.add_small_tensors();
  small->set_data_type(v1::DATA_TYPE_F32);
  small->add_shape(3);
  small->add_shape(0);
  const auto layout = ClientLayout::Create(message);
  REQUIRE(layout.ok());
  CHECK((*layout)->small_bytes() == std::vector<uint64_t>{8, 0});
}

TEST_CASE("a name in a message is printable and short") {
  CHECK(Printable(std::string("a\0z", 3)) == "a\\x00z");
  CHECK(Printable(std::string(10000, 'x')).size() < 300);
}

}  // namespace
}  // namespace ckptd
