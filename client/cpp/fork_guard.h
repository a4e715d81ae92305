// Trainers fork (data loader workers). A forked child never touches a client: the
// threads, locks and connections behind it did not survive the fork.
#ifndef CKPTD_CLIENT_CPP_FORK_GUARD_H_
#define CKPTD_CLIENT_CPP_FORK_GUARD_H_

#include "absl/status/status.h"

namespace ckptd {

// To be called before gRPC or a lock of ours is first touched: from here on,
// children of this process are marked. Any thread, any number of times.
void MarkForksFromHere();

// True in a process that was forked after MarkForksFromHere(). Safe anywhere; a
// destructor asks it first and then leaks rather than touches.
bool InForkedChild();

// FAILED_PRECONDITION in such a child, saying what to do instead.
[[nodiscard]] absl::Status CheckNotForked();

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_FORK_GUARD_H_
