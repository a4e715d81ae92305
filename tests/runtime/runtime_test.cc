#include <vector>

#include "absl/synchronization/notification.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/executor.h"
#include "tests/catch.h"
#include "tests/runtime/manual_alarms.h"

namespace ckptd {
namespace {

TEST_CASE("an executor refuses what is above its queue's limit, and runs what it took") {
  Executor executor("test", 1, 1);
  absl::Notification started;
  absl::Notification go_on;
  int ran = 0;
  REQUIRE(executor
              .Submit([&] {
                started.Notify();
                go_on.WaitForNotification();
              })
              .ok());
  started.WaitForNotification();
  REQUIRE(executor.Submit([&] { ++ran; }).ok());
  CHECK(executor.Submit([] {}).code() == absl::StatusCode::kResourceExhausted);
  go_on.Notify();
  executor.Stop();
  CHECK(ran == 1);
  CHECK(executor.Submit([] {}).code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("alarms call in order of time, and never what was cancelled") {
  ManualClock clock;
  ManualAlarms alarms(clock);
  std::vector<int> called;
  const absl::Time start = clock.Now();
  alarms.At(start + absl::Seconds(2), [&] { called.push_back(2); });
  alarms.At(start + absl::Seconds(1), [&] { called.push_back(1); });
  const AlarmId third = alarms.At(start + absl::Seconds(3), [&] { called.push_back(3); });
  CHECK(alarms.Cancel(third));
  CHECK_FALSE(alarms.Cancel(third));
  alarms.Advance(absl::Seconds(10));
  CHECK(called == std::vector<int>{1, 2});
}

TEST_CASE("thread alarms call what is due and drop the rest when destroyed") {
  absl::Notification called;
  bool dropped = true;
  {
    ThreadAlarms alarms(SystemClock());
    alarms.At(SystemClock().Now() + absl::Hours(1), [&] { dropped = false; });
    alarms.At(SystemClock().Now(), [&] { called.Notify(); });
    called.WaitForNotification();
  }
  CHECK(dropped);
}

}  // namespace
}  // namespace ckptd
