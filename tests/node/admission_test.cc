#include "daemon/node/admission.h"

#include <utility>

#include "tests/catch.h"

namespace ckptd {
namespace {

constexpr uint64_t kPage = kExtentAlignmentBytes;

TEST_CASE("requests are served in the order in which tickets were opened") {
  Admission admission({8 * kPage});
  const TicketId first = admission.Open("a", "first");
  const TicketId second = admission.Open("a", "second");
  const RequestId late = *admission.Ask(second, {{.bytes = kPage}});
  const RequestId early = *admission.Ask(first, {{.bytes = kPage}});
  CHECK(admission.Next()->request == early);
  CHECK(admission.Next()->request == late);
  CHECK_FALSE(admission.Next().has_value());
}

TEST_CASE("a later ticket gets space only when what an earlier one announced stays free") {
  Admission admission({8 * kPage});
  const TicketId first = admission.Open("a", "first");
  admission.Expect(first, 6 * kPage);
  const TicketId second = admission.Open("a", "second");
  REQUIRE(admission.Ask(second, {{.bytes = 3 * kPage}}).ok());
  CHECK_FALSE(admission.Next().has_value());
  const RequestId early = *admission.Ask(first, {{.bytes = 4 * kPage}});
  CHECK(admission.Next()->request == early);
  CHECK_FALSE(admission.Next().has_value());
  admission.Complete(first);
  CHECK(admission.Next().has_value());
}

TEST_CASE("invariant 4: what is larger than the arena is refused at once, with the flag to set") {
  Admission admission({8 * kPage});
  const TicketId ticket = admission.Open("a", "saving step 1 of job a");
  const absl::Status status = admission.Ask(ticket, {{.bytes = 9 * kPage}}).status();
  CHECK(absl::IsResourceExhausted(status));
  const std::string message(status.message());
  CHECK(message.find("36.0 KiB") != std::string::npos);
  CHECK(message.find("32.0 KiB") != std::string::npos);
  CHECK(message.find("--arena-bytes") != std::string::npos);
}

TEST_CASE("released memory serves the next in line, and the holders are named") {
  Admission admission({4 * kPage});
  const TicketId first = admission.Open("a", "saving step 1");
  REQUIRE(admission.Ask(first, {{.bytes = 4 * kPage}}).ok());
  std::optional<Admission::Admitted> held = admission.Next();
  REQUIRE(held.has_value());
  admission.Complete(first);
  const TicketId second = admission.Open("b", "saving step 2");
  REQUIRE(admission.Ask(second, {{.bytes = kPage}}).ok());
  CHECK_FALSE(admission.Next().has_value());
  CHECK(admission.Holders() == "16.0 KiB for saving step 1");
  admission.Release(first, held->grant.blocks[0]);
  CHECK(admission.Next().has_value());
}

TEST_CASE("idle memory is nobody's: it counts neither as used nor as held, and is freed alone") {
  Admission admission({4 * kPage});
  const TicketId saved = admission.Open("a", "saving step 1");
  REQUIRE(admission.Ask(saved, {{.bytes = 3 * kPage}}).ok());
  std::optional<Admission::Admitted> kept = admission.Next();
  REQUIRE(kept.has_value());
  admission.Complete(saved);
  admission.SetIdle(saved, kept->grant.blocks[0]);
  CHECK(admission.used_bytes() == 0);
  CHECK(admission.idle_bytes() == 3 * kPage);
  CHECK(admission.Holders() == "nobody");
  const TicketId next = admission.Open("a", "saving step 2");
  REQUIRE(admission.Ask(next, {{.bytes = 2 * kPage}}).ok());
  CHECK_FALSE(admission.Next().has_value());
  admission.ReleaseIdle(kept->grant.blocks[0]);
  CHECK(admission.idle_bytes() == 0);
  CHECK(admission.Next().has_value());
}

// Asks and is admitted.
std::vector<Extent> Take(Admission& admission, TicketId ticket, uint64_t bytes) {
  const RequestId asked = *admission.Ask(ticket, {{.bytes = bytes}});
  std::optional<Admission::Admitted> admitted = admission.Next();
  REQUIRE(admitted.has_value());
  REQUIRE(admitted->request == asked);
  return admitted->grant.blocks[0];
}

TEST_CASE("a ticket of revolving memory may have more than the arena in all, but not at once") {
  Admission admission({8 * kPage});
  const TicketId ticket = admission.Open("a", "saving step 1 of job a");
  admission.ExpectRevolving(ticket, 8 * kPage);
  std::vector<Extent> last = Take(admission, ticket, 4 * kPage);
  for (int window = 0; window < 5; ++window) {
    std::vector<Extent> next = Take(admission, ticket, 4 * kPage);
    admission.Release(ticket, std::exchange(last, std::move(next)));
  }
  CHECK(absl::IsResourceExhausted(admission.Ask(ticket, {{.bytes = 9 * kPage}}).status()));
}

TEST_CASE("what a ticket of revolving memory gives back is kept for it until it is complete") {
  Admission admission({8 * kPage});
  const TicketId first = admission.Open("a", "first");
  admission.ExpectRevolving(first, 6 * kPage);
  const std::vector<Extent> given_back = Take(admission, first, 4 * kPage);
  Take(admission, first, 2 * kPage);
  admission.Release(first, given_back);  // it has had all that it expects, and holds 2
  const TicketId second = admission.Open("a", "second");
  REQUIRE(admission.Ask(second, {{.bytes = 3 * kPage}}).ok());
  CHECK_FALSE(admission.Next().has_value());
  Take(admission, first, 4 * kPage);
  CHECK_FALSE(admission.Next().has_value());
  admission.Complete(first);
  CHECK_FALSE(admission.Next().has_value());  // it holds 6 of 8 still
  admission.Release(first, given_back);
  CHECK(admission.Next().has_value());
}

}  // namespace
}  // namespace ckptd
