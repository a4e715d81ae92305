// The smallest cluster in which nodes have to agree.
#ifndef CKPTD_TESTS_COORDINATOR_TWO_NODES_H_
#define CKPTD_TESTS_COORDINATOR_TWO_NODES_H_

#include <string>

#include "tests/catch.h"
#include "tests/coordinator/fake_cluster.h"

namespace ckptd {

// Two nodes of one rank each, that halve tensor w and both have the value lr.
struct TwoNodes {
  TwoNodes() : a(cluster, "a", {{0, Half(0)}}), b(cluster, "b", {{1, Half(1)}}) {}

  static v1::Layout Half(uint64_t half) {
    return MakeLayout({MakeShard("w", {4, 3}, {half * 2, 0}, {2, 3})}, {"lr"});
  }
  void Join(const std::string& token = "run1") {
    auto first = a.Join(2, token);
    auto second = b.Join(2, token);
    const auto joined = first.Wait();
    INFO(joined.status().ToString());
    REQUIRE(joined.ok());
    REQUIRE(second.status().ok());
    a.epoch = b.epoch = joined->epoch();
  }
  void Plan(uint64_t step) {
    auto first = a.Plan(step);
    auto second = b.Plan(step);
    INFO(first.status().ToString());
    REQUIRE(first.status().ok());
    REQUIRE(second.status().ok());
    a.UsePlan(*first.Wait());
    b.UsePlan(*second.Wait());
  }
  void NextSave() { ++a.save_number, ++b.save_number; }
  void Save(uint64_t step) {
    Plan(step);
    auto first = a.Commit(step);
    auto second = b.Commit(step);
    INFO(first.status().ToString());
    REQUIRE(first.status().ok());
    REQUIRE(second.status().ok());
    NextSave();
  }
  // Both die after staging and come back as another run; what they hold is listed.
  void Restart(const std::string& token, uint64_t step, bool a_staged, bool b_staged) {
    v1::UnfinishedAttempt held;
    held.mutable_attempt()->set_epoch(a.epoch);
    held.mutable_attempt()->set_save_number(a.save_number);
    held.set_step(step);
    held.set_staged(a_staged);
    a.unfinished = {held};
    held.set_staged(b_staged);
    b.unfinished = {held};
    a.nonce = b.nonce = token;
    Join(token);
  }

  // Both reports are sent; the status that node b is answered with, which is node a's too.
  absl::Status TrySave(uint64_t step) {
    Plan(step);
    auto first = a.Commit(step);
    auto second = b.Commit(step);
    CHECK(first.status() == second.status());
    NextSave();
    return second.status();
  }

  FakeCluster cluster;
  FakeNode a;
  FakeNode b;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_COORDINATOR_TWO_NODES_H_
