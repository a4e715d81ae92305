#include "daemon/server/stop_signal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"

namespace ckptd {

absl::StatusOr<StopSignal> StopSignal::Install() {
  // A client that hangs up is an error of one write, not the daemon's end.
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &signals, nullptr); error != 0) {
    return absl::ErrnoToStatus(error, "blocking SIGTERM and SIGINT");
  }
  UniqueFd descriptor(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!descriptor.valid()) return absl::ErrnoToStatus(errno, "creating the signal descriptor");
  return StopSignal(std::move(descriptor));
}

int StopSignal::Wait() {
  signalfd_siginfo info = {};
  while (::read(descriptor_.get(), &info, sizeof(info)) != sizeof(info)) {
  }
  return static_cast<int>(info.ssi_signo);
}

}  // namespace ckptd
