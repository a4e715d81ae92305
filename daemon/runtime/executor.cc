#include "daemon/runtime/executor.h"

#include <pthread.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace ckptd {

Executor::Executor(std::string name, int threads, size_t queue_limit)
    : name_(std::move(name)), queue_limit_(queue_limit) {
  threads_.reserve(threads);
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Run(); });
    pthread_setname_np(threads_.back().native_handle(), name_.substr(0, 15).c_str());
  }
}

Executor::~Executor() { Stop(); }

absl::Status Executor::Submit(absl::AnyInvocable<void()> task) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return absl::UnavailableError(absl::StrCat(name_, " is shutting down"));
  if (queue_.size() >= queue_limit_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(name_, " has ", queue_limit_, " tasks waiting, its limit; try again later"));
  }
  queue_.push_back(std::move(task));
  return absl::OkStatus();
}

void Executor::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

size_t Executor::queued() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size();
}

void Executor::Run() {
  while (true) {
    absl::AnyInvocable<void()> task;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](Executor* self)
               ABSL_NO_THREAD_SAFETY_ANALYSIS { return self->stopping_ || !self->queue_.empty(); },
          this));
      if (queue_.empty()) return;  // stopping, and nothing left
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    std::move(task)();
  }
}

}  // namespace ckptd
