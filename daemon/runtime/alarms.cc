#include "daemon/runtime/alarms.h"

namespace ckptd {

ThreadAlarms::ThreadAlarms(const Clock& clock) : clock_(clock), thread_([this] { Run(); }) {}

ThreadAlarms::~ThreadAlarms() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

AlarmId ThreadAlarms::At(absl::Time when, absl::AnyInvocable<void()> call) {
  absl::MutexLock lock(&mutex_);
  const AlarmId id = next_id_++;
  calls_.emplace(std::make_pair(when, id), std::move(call));
  times_.emplace(id, when);
  changed_.SignalAll();
  return id;
}

bool ThreadAlarms::Cancel(AlarmId id) {
  absl::AnyInvocable<void()> dropped;  // destroyed outside the lock
  absl::MutexLock lock(&mutex_);
  auto it = times_.find(id);
  if (it == times_.end()) return false;
  auto node = calls_.extract({it->second, id});
  dropped = std::move(node.mapped());
  times_.erase(it);
  return true;
}

void ThreadAlarms::Run() {
  while (true) {
    absl::AnyInvocable<void()> call;
    {
      absl::MutexLock lock(&mutex_);
      while (!stopping_ && (calls_.empty() || calls_.begin()->first.first > clock_.Now())) {
        const absl::Time next =
            calls_.empty() ? absl::InfiniteFuture() : calls_.begin()->first.first;
        changed_.WaitWithDeadline(&mutex_, next);
      }
      if (stopping_) return;
      auto first = calls_.extract(calls_.begin());
      times_.erase(first.key().second);
      call = std::move(first.mapped());
    }
    std::move(call)();
  }
}

}  // namespace ckptd
