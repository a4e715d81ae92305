// A few threads of the client's own.
#ifndef CKPTD_CLIENT_CPP_WORKER_POOL_H_
#define CKPTD_CLIENT_CPP_WORKER_POOL_H_

#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace ckptd {

// Thread-safe. Threads start with the first task, so that a pool that is not used
// costs nothing. In a forked child the destructor does nothing.
class WorkerPool {
 public:
  WorkerPool(int threads, size_t queue_limit);
  // As Stop().
  ~WorkerPool();

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Tasks start in order. RESOURCE_EXHAUSTED when queue_limit tasks wait,
  // FAILED_PRECONDITION after Stop; the task then never runs.
  [[nodiscard]] absl::Status Submit(absl::AnyInvocable<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls task(0) ... task(count - 1), some of them at the same time, the calling
  // thread helping, and returns when all have returned. Not from a task: two of them
  // could each wait for the thread that the other holds.
  void ForEach(size_t count, absl::FunctionRef<void(size_t)> task) ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes no new tasks, finishes those it took, joins. Not from a task.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const int thread_count_;
  const size_t queue_limit_;
  absl::Mutex mutex_;
  std::deque<absl::AnyInvocable<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_WORKER_POOL_H_
