// What a node remembers of its worlds from one save to the next: layouts by their
// fingerprints, the plan, the save numbers that were used.
#ifndef CKPTD_DAEMON_NODE_SAVE_MEMORY_H_
#define CKPTD_DAEMON_NODE_SAVE_MEMORY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "daemon/node/checked_layout.h"
#include "daemon/node/limits.h"
#include "daemon/node/save_attempt.h"
#include "daemon/node/session.h"
#include "daemon/node/worlds.h"

namespace ckptd {

// A world is remembered as long as a session that has used it lives, and none of an older
// epoch once a newer one saves. Not thread-safe.
class SaveMemory {
 public:
  explicit SaveMemory(uint64_t most_layout_bytes = kMostLayoutBytes)
      : most_layout_bytes_(most_layout_bytes) {}

  // Null when it is not known.
  CheckedLayoutPtr FindLayout(const WorldView& world, const std::string& fingerprint) const;
  // Keeps the rank's newest kCachedLayoutsPerRank. RESOURCE_EXHAUSTED when all layouts
  // together would have more bytes than may be kept.
  [[nodiscard]] absl::Status AddLayout(const WorldView& world, SessionId session,
                                       const CheckedLayoutPtr& layout);

  NodePlanPtr Plan(const std::string& job, uint64_t epoch) const;
  // Of a world that is not remembered any more: nothing.
  void SetPlan(const std::string& job, uint64_t epoch, NodePlanPtr plan);
  void ForgetPlan(const std::string& job, uint64_t epoch) { SetPlan(job, epoch, nullptr); }

  // INVALID_ARGUMENT unless the number is above all that this rank has used.
  [[nodiscard]] absl::Status CheckSaveNumber(const WorldView& world, uint64_t number) const;
  void UseSaveNumber(const WorldView& world, SessionId session, uint64_t number);

  void ForgetOlderEpochs(const std::string& job, uint64_t epoch);
  void SessionEnded(SessionId session);

 private:
  struct World {
    NodePlanPtr plan;
    std::map<uint32_t, std::deque<CheckedLayoutPtr>> layouts;  // by rank, newest first
    std::map<uint32_t, uint64_t> last_save_number;             // by rank
    std::set<SessionId> sessions;
  };
  using Key = std::pair<std::string, uint64_t>;  // job, epoch

  World& Remember(const WorldView& world, SessionId session);
  const World* Find(const std::string& job, uint64_t epoch) const;
  std::map<Key, World>::iterator Forget(std::map<Key, World>::iterator world);

  const uint64_t most_layout_bytes_;
  std::map<Key, World> worlds_;
  uint64_t layout_bytes_ = 0;  // serialized, of all layouts in worlds_
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SAVE_MEMORY_H_
