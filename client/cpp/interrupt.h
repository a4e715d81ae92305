// Lets one thread (a signal's) end the waits of another, so that the host stays in control.
#ifndef CKPTD_CLIENT_CPP_INTERRUPT_H_
#define CKPTD_CLIENT_CPP_INTERRUPT_H_

#include <functional>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace ckptd {

// What a call does that is interrupted: give up in the thread that the host wants back, go on
// in one of our own.
enum class OnInterrupt { kGiveUp, kGoOn };

// Thread-safe.
class Interrupt {
 public:
  // While on, every wait that asks to be told is given up, at once or when it begins.
  void Set(bool on) ABSL_LOCKS_EXCLUDED(mutex_);

  // A wait that can be given up, as long as this lives.
  class Wait {
   public:
    // `give_up` may be called on any thread, also before this returns and more than once;
    // it must not block, nor use `interrupt`.
    Wait(Interrupt& interrupt, std::function<void()> give_up);
    ~Wait();
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Interrupt& interrupt_;
    std::list<std::function<void()>>::iterator position_;
  };

 private:
  absl::Mutex mutex_;
  bool on_ ABSL_GUARDED_BY(mutex_) = false;
  std::list<std::function<void()>> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_INTERRUPT_H_
