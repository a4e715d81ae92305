// What becomes of older worlds' unfinished saves when a new world is complete.
// Pure.
//
// What every node of the attempt's world has wholly staged is let finish. A node
// that is in the new world too has said what it holds when it joined: what it did
// not name as staged is lost. A node that is not in the new world may still report,
// within a grace period.
#ifndef CKPTD_DAEMON_COORDINATOR_SETTLEMENT_H_
#define CKPTD_DAEMON_COORDINATOR_SETTLEMENT_H_

#include <set>
#include <string>

#include "daemon/coordinator/world.h"

namespace ckptd {

enum class Verdict {
  kFinish,   // all nodes have it staged
  kAbandon,  // a node will never have it staged
  kWait,     // only nodes outside the new world have not reported
};

Verdict JudgeAttempt(const World& attempt_world, const std::set<std::string>& staged_nodes,
                     const World& new_world, bool grace_over);

// May there be a wholly staged attempt of `older` of which nothing was heard yet?
// Only where no node of it was asked: none is in the new world.
bool MayHoldUnknownAttempts(const World& older, const World& new_world);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_SETTLEMENT_H_
