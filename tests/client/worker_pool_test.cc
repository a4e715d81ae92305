#include "client/cpp/worker_pool.h"

#include <atomic>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

TEST_CASE("a pool runs every task it took before it stops") {
  std::atomic<int> ran{0};
  WorkerPool pool(2, 100);
  for (int i = 0; i < 100; ++i) REQUIRE(pool.Submit([&ran] { ++ran; }).ok());
  pool.Stop();
  CHECK(ran == 100);
}

TEST_CASE("a pool refuses tasks beyond its limit, and all after Stop") {
  WorkerPool pool(1, 1);
  absl::Notification started;
  absl::Notification release;
  REQUIRE(pool.Submit([&] {
                started.Notify();
                release.WaitForNotification();
              })
              .ok());
  started.WaitForNotification();
  REQUIRE(pool.Submit([] {}).ok());
  CHECK(absl::IsResourceExhausted(pool.Submit([] {})));
  release.Notify();
  pool.Stop();
  CHECK(absl::IsFailedPrecondition(pool.Submit([] {})));
}

TEST_CASE("each index is visited exactly once, also by a pool without threads") {
  const int threads = GENERATE(0, 1, 3);
  WorkerPool pool(threads, 8);
  std::vector<std::atomic<int>> visits(1000);
  pool.ForEach(visits.size(), [&](size_t i) { ++visits[i]; });
  int wrong = 0;
  for (const auto& count : visits) wrong += count == 1 ? 0 : 1;
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace ckptd
