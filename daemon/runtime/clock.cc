#include "daemon/runtime/clock.h"

#include "absl/time/clock.h"

namespace ckptd {
namespace {

class RealClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace

const Clock& SystemClock() {
  static const RealClock* clock = new RealClock();
  return *clock;
}

}  // namespace ckptd
