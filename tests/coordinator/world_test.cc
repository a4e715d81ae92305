#include "daemon/coordinator/world.h"

#include "daemon/coordinator/settlement.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

v1::JoinWorldRequest Ask(const std::string& node, const std::string& nonce, uint32_t rank,
                         uint32_t world_size = 2, const std::string& token = "run") {
  v1::JoinWorldRequest request;
  request.set_job("gpt");
  request.set_node(node);
  request.set_world_size(world_size);
  request.set_run_token(token);
  v1::Member* member = request.add_members();
  member->set_rank(rank);
  member->set_process_nonce(nonce);
  return request;
}

TEST_CASE("another nonce under the same token is another generation with a new epoch") {
  WorldTable table;
  REQUIRE(table.Join(1, Ask("a", "x", 0)).ok());
  REQUIRE(table.Join(2, Ask("b", "y", 1))->state == WorldTable::State::kFormed);
  CHECK(table.Join(3, Ask("a", "x", 0))->state == WorldTable::State::kMember);
  CHECK(table.Join(4, Ask("a", "x2", 0))->state == WorldTable::State::kWaiting);
  CHECK(table.current()->epoch == 1);
  CHECK(table.Join(5, Ask("b", "y2", 1))->state == WorldTable::State::kFormed);
  CHECK(table.current()->epoch == 2);
  CHECK(table.Join(6, Ask("a", "x", 0)).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("a process of the current world that comes from another node is refused") {
  WorldTable table;
  REQUIRE(table.Join(1, Ask("a", "x", 0, 1))->state == WorldTable::State::kFormed);
  CHECK(table.Join(2, Ask("renamed", "x", 0, 1)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("two nodes that claim one rank, or differ in world size, are told apart") {
  WorldTable table;
  REQUIRE(table.Join(1, Ask("a", "x", 0)).ok());
  CHECK(table.Join(2, Ask("b", "y", 0)).status().code() == absl::StatusCode::kAlreadyExists);
  CHECK(table.Join(3, Ask("b", "y", 1, 3)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  table.Leave(1);  // its deadline passed: the rank is free
  CHECK(table.Join(4, Ask("b", "y", 0)).ok());
}

TEST_CASE("a process that takes another's rank on its node ends the other's wait") {
  WorldTable table;
  REQUIRE(table.Join(1, Ask("a", "x", 0)).ok());
  const auto outcome = table.Join(2, Ask("a", "x2", 0));
  REQUIRE(outcome.ok());
  CHECK(outcome->displaced == std::vector<WorldTable::CallId>{1});
  CHECK(table.Join(3, Ask("b", "y", 1))->joined == std::vector<WorldTable::CallId>{2, 3});
}

TEST_CASE("an attempt is finished, awaited or abandoned by who has staged it") {
  World older;
  older.ranks_of_node = {{"a", {0}}, {"b", {1}}};
  World newer;
  newer.ranks_of_node = {{"a", {0}}};
  CHECK(JudgeAttempt(older, {"a", "b"}, newer, false) == Verdict::kFinish);
  CHECK(JudgeAttempt(older, {"a"}, newer, false) == Verdict::kWait);
  CHECK(JudgeAttempt(older, {"a"}, newer, true) == Verdict::kAbandon);
  CHECK(JudgeAttempt(older, {"b"}, newer, false) == Verdict::kAbandon);
  CHECK_FALSE(MayHoldUnknownAttempts(older, newer));
}

}  // namespace
}  // namespace ckptd
