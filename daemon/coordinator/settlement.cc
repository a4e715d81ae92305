#include "daemon/coordinator/settlement.h"

#include <algorithm>

namespace ckptd {

Verdict JudgeAttempt(const World& attempt_world, const std::set<std::string>& staged_nodes,
                     const World& new_world, bool grace_over) {
  Verdict verdict = Verdict::kFinish;
  for (const auto& [node, ranks] : attempt_world.ranks_of_node) {
    if (staged_nodes.count(node) > 0) continue;
    if (grace_over || new_world.HasNode(node)) return Verdict::kAbandon;
    verdict = Verdict::kWait;
  }
  return verdict;
}

bool MayHoldUnknownAttempts(const World& older, const World& new_world) {
  return std::none_of(older.ranks_of_node.begin(), older.ranks_of_node.end(),
                      [&](const auto& it) { return new_world.HasNode(it.first); });
}

}  // namespace ckptd
