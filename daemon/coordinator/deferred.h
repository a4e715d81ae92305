// What is to be done once a lock is released: answers to calls, mostly. Declared
// before the lock's guard, it runs after it.
#ifndef CKPTD_DAEMON_COORDINATOR_DEFERRED_H_
#define CKPTD_DAEMON_COORDINATOR_DEFERRED_H_

#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"

namespace ckptd {

class Deferred {
 public:
  Deferred() = default;
  ~Deferred() {
    for (auto& action : actions_) std::move(action)();
  }
  Deferred(const Deferred&) = delete;
  Deferred& operator=(const Deferred&) = delete;

  template <typename DoneType, typename Result>
  void Answer(DoneType done, Result result) {
    actions_.push_back([done = std::move(done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }

 private:
  std::vector<absl::AnyInvocable<void()>> actions_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_DEFERRED_H_
