// Time comes in through constructors, so that tests own it.
#ifndef CKPTD_DAEMON_RUNTIME_CLOCK_H_
#define CKPTD_DAEMON_RUNTIME_CLOCK_H_

#include "absl/time/time.h"

namespace ckptd {

// Safe to call from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The machine's clock. Lives for ever.
const Clock& SystemClock();

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_CLOCK_H_
