// One attempt at saving one step, from the first report to the last: who has
// given layouts, who has staged, whose files are durable, and whether all of them
// mean the same plan. A pure state machine: no clock, no I/O, no threads.
//
// Every method that takes a report may be called again with the same one.
#ifndef CKPTD_DAEMON_COORDINATOR_SAVE_ROUND_H_
#define CKPTD_DAEMON_COORDINATOR_SAVE_ROUND_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/coordinator/planned_save.h"
#include "daemon/coordinator/world.h"

namespace ckptd {

struct AttemptKey {
  uint64_t epoch = 0;
  uint64_t save_number = 0;
  friend auto operator<=>(const AttemptKey&, const AttemptKey&) = default;
};

inline AttemptKey KeyOf(const v1::Attempt& attempt) {
  return {attempt.epoch(), attempt.save_number()};
}

// Does it give fingerprints only?
bool LacksLayouts(const v1::CommitSaveRequest& report);

class SaveRound {
 public:
  SaveRound(std::string job, uint64_t step, AttemptKey attempt, std::shared_ptr<const World> world);

  const std::string& job() const { return job_; }
  uint64_t step() const { return step_; }
  AttemptKey attempt() const { return attempt_; }
  const World& world() const { return *world_; }
  // "saving step 40 of job gpt, attempt e1s3".
  std::string Describe() const;

  // INVALID_ARGUMENT when the node is not of this world, or the ranks are not
  // exactly its ranks, or a fingerprint is not its layout's.
  absl::Status GiveLayouts(const v1::PlanSaveRequest& request);
  absl::Status Staged(const v1::ReportStagedRequest& request);
  // The report is kept until the commit. A failed part is not for here.
  absl::Status Committed(v1::CommitSaveRequest request);
  // As a node said when it joined a newer world; its fingerprints come later.
  void MarkStaged(const std::string& node);

  // The plan is known: made from this round's layouts or an earlier round's.
  void SetPlan(std::shared_ptr<const PlannedSave> plan);
  const std::shared_ptr<const PlannedSave>& plan() const { return plan_; }
  // The node asked for a plan and was given the known one.
  void MarkPlanned(const std::string& node);

  // FAILED_PRECONDITION when nodes save by different plans, naming the ranks that
  // changed their layout alone. `known` is the plan that this job saved by last, or null.
  // Where some save by a plan that is not known here, made by an earlier coordinator,
  // those who ask for one may mean the same: that shows when all fingerprints are known.
  absl::Status CheckAgreement(const PlannedSave* known) const;

  // In PlanSave, or in the report of a node whose plan is not known here.
  bool AllGaveLayouts() const;
  bool AllStaged() const;
  bool AllCommitted() const;
  std::set<std::string> StagedNodes() const;

  // The id of the plan for the fingerprints that were reported; empty while some are not.
  std::string FingerprintPlanId() const;
  // By which the given node saves; empty: not known.
  std::string PlanIdOf(const std::string& node) const { return parts_.at(node).plan_id; }

  // Serialized layouts by rank, moved out; empty strings where none were given.
  std::vector<std::string> TakeLayouts();
  std::vector<v1::CommitSaveRequest> TakeReports();

  // "phase persist: waiting for ranks 2-3 (node b)".
  std::string DescribeWaiting() const;

 private:
  struct Part {
    bool asked = false;  // for a plan
    bool gave_layouts = false;
    bool staged = false;
    std::string plan_id;  // by which it saves; empty: not known
    std::optional<v1::CommitSaveRequest> report;
  };

  absl::Status CheckRanks(const std::string& node, std::vector<uint32_t> ranks) const;
  absl::Status KeepFingerprint(uint32_t rank, const std::string& fingerprint);
  absl::Status DisagreementError(std::vector<uint32_t> waiting, const PlannedSave* known) const;
  template <typename Predicate>
  bool All(Predicate predicate) const;

  const std::string job_;
  const uint64_t step_;
  const AttemptKey attempt_;
  const std::shared_ptr<const World> world_;
  std::map<std::string, Part> parts_;      // of every node of the world
  std::vector<std::string> fingerprints_;  // by rank; empty: not known
  std::vector<std::string> layouts_;       // by rank; empty: not given
  std::shared_ptr<const PlannedSave> plan_;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_SAVE_ROUND_H_
