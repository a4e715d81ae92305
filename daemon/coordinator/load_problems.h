// Gathers what is wrong with a load, to be told all at once.
#ifndef CKPTD_DAEMON_COORDINATOR_LOAD_PROBLEMS_H_
#define CKPTD_DAEMON_COORDINATOR_LOAD_PROBLEMS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace ckptd {

class LoadProblems {
 public:
  // In the order in which they are listed.
  enum class Kind { kMissing, kExtra, kShape, kType, kKind, kPerRank };

  // The same problem of several ranks is listed once.
  void Add(Kind kind, std::string description, uint32_t rank);
  void AddExtra(std::string name);

  // OK, or FAILED_PRECONDITION: "2 missing: a (ranks 0-3), b (rank 1); 1 extra: c; ...".
  absl::Status ToStatus() const;

 private:
  std::map<std::pair<Kind, std::string>, std::set<uint32_t>> ranks_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_LOAD_PROBLEMS_H_
