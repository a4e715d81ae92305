#include "client/cpp/fork_guard.h"

#include <pthread.h>

#include <atomic>

namespace ckptd {
namespace {

// Trivially destructible, so that reading it is safe until the process is gone.
std::atomic<bool> forked{false};

void MarkChild() { forked.store(true, std::memory_order_relaxed); }

}  // namespace

void MarkForksFromHere() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, &MarkChild);
}

bool InForkedChild() { return forked.load(std::memory_order_relaxed); }

absl::Status CheckNotForked() {
  if (!InForkedChild()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "this process was forked from one that uses a ckptd client, and a forked child can't use "
      "one; save and load in the parent, or start this process with the \"spawn\" or "
      "\"forkserver\" method");
}

}  // namespace ckptd
