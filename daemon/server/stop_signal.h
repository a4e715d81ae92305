// SIGTERM and SIGINT as something to wait for, not as something that interrupts.
#ifndef CKPTD_DAEMON_SERVER_STOP_SIGNAL_H_
#define CKPTD_DAEMON_SERVER_STOP_SIGNAL_H_

#include "absl/status/statusor.h"
#include "proto/rpc/unique_fd.h"

namespace ckptd {

// Blocks the signals in the calling thread and all that it starts afterwards: make
// it first thing in main. From then on a signal, also a second one, only arrives
// here: nothing that is being finished is cut off by impatience.
class StopSignal {
 public:
  static absl::StatusOr<StopSignal> Install();

  // Returns the number of the signal that came (SIGTERM or SIGINT).
  int Wait();

 private:
  explicit StopSignal(UniqueFd descriptor) : descriptor_(std::move(descriptor)) {}
  UniqueFd descriptor_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_STOP_SIGNAL_H_
