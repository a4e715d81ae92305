#include "storage/layout/box.h"

#include <limits>

#include "storage/layout/data_type.h"
#include "tests/catch.h"
#include "tests/property.h"
#include "tests/storage/layout/marks.h"

namespace ckptd {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST_CASE("every data type has a size and a name, and no other number has") {
  for (int number = 1; number <= 17; ++number) {
    const std::optional<DataType> type = DataTypeFromNumber(number);
    REQUIRE(type.has_value());
    CHECK(ElementBytes(*type) > 0);
    CHECK(DataTypeName(*type) != "?");
  }
  CHECK(ElementBytes(DataType::kBF16) == 2);
  CHECK(ElementBytes(DataType::kC128) == 16);
  CHECK_FALSE(DataTypeFromNumber(0).has_value());
  CHECK_FALSE(DataTypeFromNumber(18).has_value());
  CHECK_FALSE(DataTypeFromNumber(-1).has_value());
  CHECK(ElementBytes(static_cast<DataType>(200)) == 0);
  CHECK(DataTypeName(static_cast<DataType>(200)) == "?");
}

TEST_CASE("a shape with a negative length is refused, and the error shows it") {
  const absl::Status status = ValidateShape(Extents{4, -1}, 4);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("[4, -1]") != std::string::npos);
}

TEST_CASE("a shape of 2^63 bytes or more is refused") {
  CHECK(ValidateShape(Extents{kHuge}, 1).ok());
  CHECK_FALSE(ValidateShape(Extents{kHuge}, 2).ok());
  CHECK_FALSE(ValidateShape(Extents{int64_t{1} << 32, int64_t{1} << 31}, 1).ok());
  CHECK(ValidateShape(Extents{int64_t{1} << 31, int64_t{1} << 31}, 1).ok());
  // Wraps to a small number in 64 bits.
  CHECK_FALSE(ValidateShape(Extents{int64_t{1} << 32, int64_t{1} << 32, 5}, 1).ok());
  CHECK_FALSE(ValidateShape(Extents{}, uint64_t{1} << 63).ok());
}

TEST_CASE("a zero length does not hide an overflow of the others") {
  CHECK(ValidateShape(Extents{0, 7}, 4).ok());
  CHECK_FALSE(ValidateShape(Extents{0, kHuge, kHuge}, 1).ok());
}

TEST_CASE("64 dimensions are taken and 65 are refused") {
  CHECK(ValidateShape(Extents(64, 1), 4).ok());
  const absl::Status status = ValidateShape(Extents(65, 1), 4);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(std::string(status.message()).find("65") != std::string::npos);
}

TEST_CASE("a box outside its shape is refused, also where its end would overflow") {
  const Extents shape{4, 6};
  CHECK(ValidateBox(Box{{0, 0}, {4, 6}}, shape, 4).ok());
  CHECK(ValidateBox(Box{{4, 6}, {0, 0}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{1, 0}, {4, 6}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{-1, 0}, {2, 2}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{0, 0}, {-1, 2}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{2, 0}, {kHuge, 2}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{kHuge, 0}, {kHuge, 2}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{0}, {4}}, shape, 4).ok());
  CHECK_FALSE(ValidateBox(Box{{0, 0}, {4}}, shape, 4).ok());
}

TEST_CASE("boxes print as offset and end") {
  CHECK(ToString(Box{{0, 128}, {2, 128}}) == "[0:2,128:256]");
  CHECK(ToString(Box{}) == "[]");
  CHECK(ShapeToString(Extents{4, 128}) == "[4, 128]");
}

TEST_CASE("scalars meet, contain and cover as one element") {
  const Box scalar;
  CHECK(Volume(scalar) == 1);
  CHECK(Intersect(scalar, scalar) == scalar);
  CHECK(Contains(scalar, scalar));
  CHECK(FlatRangeToBoxes({}, 0, 1) == std::vector<Box>{scalar});
  CHECK(FlatRangeToBoxes({}, 0, 0).empty());
}

TEST_CASE("a box contains another exactly when it holds all its elements, an empty one always") {
  CHECK(Contains(Box{{0, 0}, {0, 0}}, Box{{0, 0}, {0, 4}}));
  CHECK(Holds("containment", [] {
    const Extents shape = AnyShape();
    const Box outer = AnyBoxIn(WholeBox(shape));
    const Box inner = AnyBoxIn(WholeBox(shape));
    const std::optional<Box> common = Intersect(outer, inner);
    const int64_t held = common.has_value() ? Volume(*common) : 0;
    RC_ASSERT(Contains(outer, inner) == (held == Volume(inner)));
  }));
}

TEST_CASE("the intersection of two boxes holds exactly the elements that both hold") {
  CHECK(Holds("intersection", [] {
    const Extents shape = AnyShape();
    const Box a = AnyBoxIn(WholeBox(shape));
    const Box b = AnyBoxIn(WholeBox(shape));
    const std::optional<Box> common = Intersect(a, b);
    std::vector<int> both = CountMarks(shape, {a, b});
    for (int& mark : both) mark = mark == 2;
    RC_ASSERT(CountMarks(shape, common.has_value() ? std::vector<Box>{*common}
                                                   : std::vector<Box>{}) == both);
    RC_ASSERT((!common.has_value() || Volume(*common) > 0));
    RC_ASSERT((!common.has_value() || (Contains(a, *common) && Contains(b, *common))));
    RC_ASSERT(Intersect(b, a) == common);
  }));
}

TEST_CASE("a flat range becomes at most 2n-1 boxes that hold its elements in order") {
  CHECK(Holds("flat range", [] {
    const Extents shape = AnyShape();
    const Box range = AnyBoxIn(Box{{0}, {Volume(shape)}});
    const int64_t first = range.offsets[0];
    const int64_t count = range.lengths[0];
    const std::vector<Box> boxes = FlatRangeToBoxes(shape, first, count);
    std::vector<int64_t> held;
    for (const Box& box : boxes) {
      ForEachIndex(box, [&](const Extents& at) { held.push_back(FlatIndex(shape, at)); });
    }
    std::vector<int64_t> wanted;
    for (int64_t i = first; i < first + count; ++i) wanted.push_back(i);
    RC_ASSERT(held == wanted);
    RC_ASSERT((boxes.size() <= std::max<size_t>(1, 2 * shape.size() - 1) || shape.empty()));
  }));
}

TEST_CASE("a flat range of a huge tensor is cut without overflow") {
  const Extents shape{int64_t{1} << 20, int64_t{1} << 21, int64_t{1} << 21};
  const int64_t first = (int64_t{1} << 42) + 5;
  const std::vector<Box> boxes = FlatRangeToBoxes(shape, first, Volume(shape) - first - 1);
  REQUIRE(boxes.size() == 5);
  CHECK(boxes.front() == Box{{1, 0, 5}, {1, 1, (int64_t{1} << 21) - 5}});
  CHECK(boxes.back() == Box{{(1 << 20) - 1, (1 << 21) - 1, 0}, {1, 1, (1 << 21) - 1}});
}

}  // namespace
}  // namespace ckptd
