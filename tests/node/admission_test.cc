#include "daemon/node/admission.h"

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

}  // namespace
}  // namespace ckptd
