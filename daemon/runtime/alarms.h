// Deadlines: calls a function at a time, unless it is cancelled before.
#ifndef CKPTD_DAEMON_RUNTIME_ALARMS_H_
#define CKPTD_DAEMON_RUNTIME_ALARMS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "daemon/runtime/clock.h"

namespace ckptd {

using AlarmId = uint64_t;

// Thread-safe. What it calls must be short and must not block: it runs on the
// alarms' one thread (ThreadAlarms) or in the test's (ManualAlarms).
class Alarms {
 public:
  virtual ~Alarms() = default;
  virtual AlarmId At(absl::Time when, absl::AnyInvocable<void()> call) = 0;
  // True if the call had not started and never will.
  virtual bool Cancel(AlarmId id) = 0;
};

class ThreadAlarms : public Alarms {
 public:
  // `clock` must outlive this, and be the machine's: waits are real.
  explicit ThreadAlarms(const Clock& clock);
  // Drops what has not been called and joins the thread.
  ~ThreadAlarms() override;

  AlarmId At(absl::Time when, absl::AnyInvocable<void()> call) override ABSL_LOCKS_EXCLUDED(mutex_);
  bool Cancel(AlarmId id) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();

  const Clock& clock_;
  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::map<std::pair<absl::Time, AlarmId>, absl::AnyInvocable<void()>> calls_
      ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<AlarmId, absl::Time> times_ ABSL_GUARDED_BY(mutex_);
  AlarmId next_id_ ABSL_GUARDED_BY(mutex_) = 1;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_ALARMS_H_
