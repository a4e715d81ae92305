// Calls that come back later (alarms, coordinator answers) must not find their
// target gone: a scope is closed before its target is destroyed.
#ifndef CKPTD_DAEMON_NODE_CALL_SCOPE_H_
#define CKPTD_DAEMON_NODE_CALL_SCOPE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/synchronization/mutex.h"
#include "daemon/runtime/alarms.h"

namespace ckptd {

// Thread-safe.
class CallScope {
 public:
  CallScope() : state_(std::make_shared<State>()) {}
  ~CallScope() { Close(); }

  // A call that does nothing once the scope is closed.
  template <typename Call>
  auto Wrap(Call call) {
    return [state = state_, call = std::move(call)](auto&&... arguments) mutable {
      if (!state->Enter()) return;
      std::move(call)(std::forward<decltype(arguments)>(arguments)...);
      state->Leave();
    };
  }

  // Waits for the calls that are running. Not to be called from one of them.
  void Close() {
    absl::MutexLock lock(&state_->mutex);
    state_->open = false;
    State* state = state_.get();
    auto idle = [state]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state->running == 0; };
    state->mutex.Await(absl::Condition(&idle));
  }

 private:
  struct State {
    absl::Mutex mutex;
    bool open ABSL_GUARDED_BY(mutex) = true;
    int running ABSL_GUARDED_BY(mutex) = 0;

    bool Enter() {
      absl::MutexLock lock(&mutex);
      if (open) ++running;
      return open;
    }
    void Leave() {
      absl::MutexLock lock(&mutex);
      --running;
    }
  };
  std::shared_ptr<State> state_;
};

// Alarms whose calls stop with the scope.
class ScopedAlarms : public Alarms {
 public:
  ScopedAlarms(Alarms& alarms, CallScope& scope) : alarms_(alarms), scope_(scope) {}
  AlarmId At(absl::Time when, absl::AnyInvocable<void()> call) override {
    return alarms_.At(when, scope_.Wrap(std::move(call)));
  }
  bool Cancel(AlarmId id) override { return alarms_.Cancel(id); }

 private:
  Alarms& alarms_;
  CallScope& scope_;
};

// Answers that are given after a lock was let go: declare it before the lock.
class Later {
 public:
  Later() = default;
  Later(const Later&) = delete;
  Later& operator=(const Later&) = delete;
  ~Later() {
    for (auto& call : calls_) std::move(call)();
  }
  void Add(absl::AnyInvocable<void()> call) { calls_.push_back(std::move(call)); }
  template <typename DoneType, typename Result>
  void Answer(DoneType done, Result result) {
    Add([done = std::move(done), result = std::move(result)]() mutable {
      std::move(done)(std::move(result));
    });
  }

 private:
  std::vector<absl::AnyInvocable<void()>> calls_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_CALL_SCOPE_H_
