#include "client/cpp/interrupt.h"

#include <utility>

namespace ckptd {

void Interrupt::Set(bool on) {
  absl::MutexLock lock(&mutex_);
  on_ = on;
  if (!on_) return;
  for (const std::function<void()>& give_up : waits_) give_up();
}

Interrupt::Wait::Wait(Interrupt& interrupt, std::function<void()> give_up) : interrupt_(interrupt) {
  absl::MutexLock lock(&interrupt_.mutex_);
  position_ = interrupt_.waits_.insert(interrupt_.waits_.end(), std::move(give_up));
  if (interrupt_.on_) (*position_)();
}

Interrupt::Wait::~Wait() {
  absl::MutexLock lock(&interrupt_.mutex_);
  interrupt_.waits_.erase(position_);
}

}  // namespace ckptd
