#include <algorithm>
#include <cstdio>
#include <string>

#include "storage/layout/box.h"
#include "tests/catch.h"
#include "tests/property.h"
#include "tests/storage/layout/marks.h"

namespace ckptd {
namespace {

// The boxes that a message names, such as "[0:2,128:256]".
std::vector<Box> BoxesNamedIn(const std::string& message) {
  std::vector<Box> boxes;
  for (size_t at = message.find('['); at != std::string::npos; at = message.find('[', at)) {
    Box box;
    long begin = 0;
    long end = 0;
    int used = 0;
    for (++at; std::sscanf(message.c_str() + at, "%ld:%ld%n", &begin, &end, &used) == 2;) {
      box.offsets.push_back(begin);
      box.lengths.push_back(end - begin);
      at += used + (message[at + used] == ',');
    }
    boxes.push_back(box);
  }
  return boxes;
}

bool IsIn(const Box& box, const std::vector<Box>& boxes) {
  return std::find(boxes.begin(), boxes.end(), box) != boxes.end();
}

// What CheckExactCover says must be what the marks say.
void CheckAgainstMarks(const Extents& shape, const std::vector<Box>& boxes) {
  const std::vector<int> marks = CountMarks(shape, boxes);
  const bool has_hole = std::find(marks.begin(), marks.end(), 0) != marks.end();
  const bool has_overlap = std::any_of(marks.begin(), marks.end(), [](int m) { return m > 1; });
  const absl::Status status = CheckExactCover(shape, boxes);
  const std::vector<Box> named = BoxesNamedIn(std::string(status.message()));
  RC_ASSERT((status.ok() == (!has_hole && !has_overlap)));
  if (absl::IsFailedPrecondition(status)) {
    RC_ASSERT(named.size() == size_t{1});
    RC_ASSERT(Volume(named[0]) > 0);
    ForEachIndex(named[0], [&](const Extents& at) { RC_ASSERT(marks[FlatIndex(shape, at)] == 0); });
  } else if (!status.ok()) {
    RC_ASSERT(absl::IsAlreadyExists(status));
    RC_ASSERT(named.size() == size_t{3});
    RC_ASSERT((IsIn(named[0], boxes) && IsIn(named[1], boxes)));
    RC_ASSERT(Intersect(named[0], named[1]) == named[2]);
    RC_ASSERT((named[0] != named[1] || std::count(boxes.begin(), boxes.end(), named[0]) > 1));
  }
}

TEST_CASE("every partition of a tensor is an exact cover") {
  CHECK(Holds("partition", [] {
    const Extents shape = AnyShape();
    const std::vector<Box> boxes = AnyPartition(shape);
    RC_ASSERT(CheckExactCover(shape, boxes).ok());
  }));
}

TEST_CASE("a partition with one box missing, moved or doubled has the error that the marks show") {
  CHECK(Holds("damaged partition", [] {
    const Extents shape = AnyShape(1);
    std::vector<Box> boxes = AnyPartition(shape);
    const size_t which = AnyBetween(0, boxes.size());
    switch (AnyBetween(0, 3)) {
      case 0:
        boxes.erase(boxes.begin() + which);
        break;
      case 1:
        boxes[which] = AnyBoxIn(WholeBox(shape));
        break;
      default:
        boxes.push_back(AnyBoxIn(boxes[which]));
    }
    CheckAgainstMarks(shape, boxes);
  }));
}

TEST_CASE("any set of boxes is judged as the marks judge it") {
  CHECK(Holds("any boxes", [] {
    const Extents shape = AnyShape();
    std::vector<Box> boxes(AnyBetween(0, 6));
    for (Box& box : boxes) box = AnyBoxIn(WholeBox(shape));
    CheckAgainstMarks(shape, boxes);
  }));
}

TEST_CASE("a hole is named exactly") {
  const std::vector<Box> boxes = {{{0, 0}, {4, 2}}, {{0, 3}, {4, 3}}};
  const absl::Status status = CheckExactCover(Extents{4, 6}, boxes);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(BoxesNamedIn(std::string(status.message())) == std::vector<Box>{{{0, 2}, {4, 1}}});
}

TEST_CASE("an overlap is named with both boxes") {
  const std::vector<Box> boxes = {{{0, 0}, {4, 4}}, {{0, 3}, {4, 3}}};
  const absl::Status status = CheckExactCover(Extents{4, 6}, boxes);
  CHECK(status.code() == absl::StatusCode::kAlreadyExists);
  CHECK(BoxesNamedIn(std::string(status.message())) ==
        std::vector<Box>{boxes[0], boxes[1], {{0, 3}, {4, 1}}});
}

TEST_CASE("no boxes leave the whole tensor, or nothing of an empty one, uncovered") {
  CHECK(absl::IsFailedPrecondition(CheckExactCover(Extents{3, 2}, {})));
  CHECK(absl::IsFailedPrecondition(CheckExactCover(Extents{}, {})));
  CHECK(CheckExactCover(Extents{3, 0}, {}).ok());
  CHECK(CheckExactCover(Extents{}, std::vector<Box>{Box{}}).ok());
  CHECK(absl::IsAlreadyExists(CheckExactCover(Extents{}, std::vector<Box>(2))));
}

TEST_CASE("a box that is not inside the shape is refused by the cover check") {
  CHECK(absl::IsInvalidArgument(CheckExactCover(Extents{4}, std::vector<Box>{{{1}, {4}}})));
  CHECK(absl::IsInvalidArgument(CheckExactCover(Extents{4}, std::vector<Box>{{{0, 0}, {4, 1}}})));
}

TEST_CASE("a pinwheel, which no straight cut divides, is an exact cover") {
  const std::vector<Box> pinwheel = {
      {{0, 0}, {1, 2}}, {{0, 2}, {2, 1}}, {{2, 1}, {1, 2}}, {{1, 0}, {2, 1}}, {{1, 1}, {1, 1}}};
  CHECK(CheckExactCover(Extents{3, 3}, pinwheel).ok());
  const std::vector<Box> without_middle(pinwheel.begin(), pinwheel.end() - 1);
  const absl::Status status = CheckExactCover(Extents{3, 3}, without_middle);
  CHECK(BoxesNamedIn(std::string(status.message())) == std::vector<Box>{{{1, 1}, {1, 1}}});
}

// Large enough that a quadratic check would not end, and a deep recursion would crash.
TEST_CASE("a grid of 2048 x 2048 shards is checked, and its one hole found") {
  std::vector<Box> boxes;
  for (int64_t row = 0; row < 2048; ++row) {
    for (int64_t column = 0; column < 2048; ++column) {
      boxes.push_back(Box{{row * 4, column * 3}, {4, 3}});
    }
  }
  const Extents shape{int64_t{2048} * 4, int64_t{2048} * 3};
  CHECK(CheckExactCover(shape, boxes).ok());
  const Box removed = boxes[1234 * 2048 + 77];
  boxes[1234 * 2048 + 77] = boxes.back();
  boxes.pop_back();
  CHECK(BoxesNamedIn(std::string(CheckExactCover(shape, boxes).message())) ==
        std::vector<Box>{removed});
}

TEST_CASE("two million one-dimensional shards in falling order are checked") {
  std::vector<Box> boxes;
  for (int64_t i = 2'000'000; i-- > 0;) boxes.push_back(Box{{i * 5}, {5}});
  CHECK(CheckExactCover(Extents{10'000'000}, boxes).ok());
  boxes[17].lengths[0] = 4;
  CHECK(absl::IsFailedPrecondition(CheckExactCover(Extents{10'000'000}, boxes)));
}

TEST_CASE("a spiral of 200,000 shards is checked without a deep recursion") {
  std::vector<Box> boxes;
  const int64_t side = 100'000;
  Box rest = WholeBox(Extents{side, side});
  for (int i = 0; rest.lengths[0] > 0 && rest.lengths[1] > 0; ++i) {
    const int d = i % 2;
    const bool at_begin = i % 4 < 2;
    Box strip = rest;
    strip.lengths[d] = 1;
    if (!at_begin) strip.offsets[d] += rest.lengths[d] - 1;
    if (at_begin) ++rest.offsets[d];
    --rest.lengths[d];
    boxes.push_back(strip);
  }
  CHECK(CheckExactCover(Extents{side, side}, boxes).ok());
  boxes.erase(boxes.begin() + boxes.size() / 2);
  CHECK(absl::IsFailedPrecondition(CheckExactCover(Extents{side, side}, boxes)));
}

TEST_CASE("200,000 shards that all overlap are refused at once") {
  std::vector<Box> boxes;
  for (int64_t i = 0; i < 200'000; ++i) boxes.push_back(Box{{i, i}, {200'000, 200'000}});
  CHECK(absl::IsAlreadyExists(CheckExactCover(Extents{400'000, 400'000}, boxes)) ==
        !absl::IsFailedPrecondition(CheckExactCover(Extents{400'000, 400'000}, boxes)));
  CHECK_FALSE(CheckExactCover(Extents{400'000, 400'000}, boxes).ok());
}

}  // namespace
}  // namespace ckptd
