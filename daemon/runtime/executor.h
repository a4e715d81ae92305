// A fixed number of threads behind a bounded queue. gRPC handlers never block:
// what may block, or takes more than microseconds, is submitted to one of these.
#ifndef CKPTD_DAEMON_RUNTIME_EXECUTOR_H_
#define CKPTD_DAEMON_RUNTIME_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace ckptd {

// Thread-safe. Tasks start in the order of submission.
class Executor {
 public:
  // `name` (at most 15 bytes) is the threads' name in ps and gdb.
  Executor(std::string name, int threads, size_t queue_limit);
  // As Stop().
  ~Executor();

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // RESOURCE_EXHAUSTED, naming the executor, when queue_limit tasks wait;
  // UNAVAILABLE after Stop. The task then never runs.
  [[nodiscard]] absl::Status Submit(absl::AnyInvocable<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes no new tasks, finishes those it took, joins the threads. Idempotent. Not
  // to be called from a task.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

  size_t queued() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();

  const std::string name_;
  const size_t queue_limit_;
  mutable absl::Mutex mutex_;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_EXECUTOR_H_
