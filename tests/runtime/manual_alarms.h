// A clock and alarms that move only when a test says so.
#ifndef CKPTD_TESTS_RUNTIME_MANUAL_ALARMS_H_
#define CKPTD_TESTS_RUNTIME_MANUAL_ALARMS_H_

#include <map>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/clock.h"

namespace ckptd {

class ManualClock : public Clock {
 public:
  absl::Time Now() const override {
    absl::MutexLock lock(&mutex_);
    return now_;
  }
  void Set(absl::Time now) {
    absl::MutexLock lock(&mutex_);
    now_ = now;
  }

 private:
  mutable absl::Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1'700'000'000);
};

// Calls run in the thread that advances the clock. Thread-safe.
class ManualAlarms : public Alarms {
 public:
  explicit ManualAlarms(ManualClock& clock) : clock_(clock) {}

  AlarmId At(absl::Time when, absl::AnyInvocable<void()> call) override {
    absl::MutexLock lock(&mutex_);
    calls_.emplace(std::make_pair(when, ++last_id_), std::move(call));
    return last_id_;
  }

  bool Cancel(AlarmId id) override {
    absl::MutexLock lock(&mutex_);
    return std::erase_if(calls_, [id](const auto& it) { return it.first.second == id; }) > 0;
  }

  // Moves the clock, and calls what is due on the way, in order.
  void Advance(absl::Duration by) {
    const absl::Time until = clock_.Now() + by;
    while (true) {
      absl::AnyInvocable<void()> call;
      {
        absl::MutexLock lock(&mutex_);
        if (calls_.empty() || calls_.begin()->first.first > until) break;
        auto first = calls_.extract(calls_.begin());
        if (first.key().first > clock_.Now()) clock_.Set(first.key().first);
        call = std::move(first.mapped());
      }
      std::move(call)();
    }
    clock_.Set(until);
  }

 private:
  ManualClock& clock_;
  absl::Mutex mutex_;
  std::map<std::pair<absl::Time, AlarmId>, absl::AnyInvocable<void()>> calls_
      ABSL_GUARDED_BY(mutex_);
  AlarmId last_id_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace ckptd

#endif  // CKPTD_TESTS_RUNTIME_MANUAL_ALARMS_H_
