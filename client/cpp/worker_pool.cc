#include "client/cpp/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "client/cpp/fork_guard.h"

namespace ckptd {

WorkerPool::WorkerPool(int threads, size_t queue_limit)
    : thread_count_(threads), queue_limit_(queue_limit) {}

WorkerPool::~WorkerPool() {
  if (!InForkedChild()) {
    Stop();
    return;
  }
  // The threads are the parent's. A joinable std::thread must not be destroyed.
  for (std::thread& thread : threads_) new std::thread(std::move(thread));
}

absl::Status WorkerPool::Submit(absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::FailedPreconditionError("the client was closed");
  if (queue_.size() >= queue_limit_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        queue_limit_, " snapshots wait to be copied; wait_snapshot() for some of them first"));
  }
  StartThreads();
  queue_.push_back(std::move(task));
  return absl::OkStatus();
}

void WorkerPool::ForEach(size_t count, absl::FunctionRef<void(size_t)> task) {
  std::atomic<size_t> next{0};
  const auto work = [&next, count, task] {
    for (size_t i = next++; i < count; i = next++) task(i);
  };
  const int helpers = count < 2 ? 0 : static_cast<int>(std::min<size_t>(thread_count_, count - 1));
  absl::BlockingCounter done(helpers);
  for (int i = 0; i < helpers; ++i) {
    const absl::Status submitted = Submit([&] {
      work();
      done.DecrementCount();
    });
    if (!submitted.ok()) done.DecrementCount();  // then this thread does that share
  }
  work();
  done.Wait();
}

void WorkerPool::Stop() {
  std::vector<std::thread> threads;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void WorkerPool::StartThreads() {
  while (threads_.size() < static_cast<size_t>(thread_count_)) {
    threads_.emplace_back([this] { Run(); });
  }
}

void WorkerPool::Run() {
  for (;;) {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task();
  }
}

}  // namespace ckptd
