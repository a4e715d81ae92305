#include "daemon/coordinator/save_round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/fingerprint.h"
#include "daemon/coordinator/manifest_builder.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

template <typename Ranks>
std::vector<uint32_t> RankNumbers(const Ranks& ranks) {
  std::vector<uint32_t> numbers;
  for (const auto& rank : ranks) numbers.push_back(rank.rank());
  return numbers;
}

}  // namespace

bool LacksLayouts(const v1::CommitSaveRequest& report) {
  static const std::string* const empty_layout = new std::string(Sha256(""));
  return std::any_of(report.ranks().begin(), report.ranks().end(), [](const v1::RankLayout& rank) {
    return rank.layout().empty() && rank.fingerprint() != *empty_layout;
  });
}

SaveRound::SaveRound(std::string job, uint64_t step, AttemptKey attempt,
                     std::shared_ptr<const World> world)
    : job_(std::move(job)),
      step_(step),
      attempt_(attempt),
      world_(std::move(world)),
      fingerprints_(world_->size()),
      layouts_(world_->size()) {
  for (const auto& [node, ranks] : world_->ranks_of_node) parts_[node];
}

std::string SaveRound::Describe() const {
  return absl::StrCat("saving ", CheckpointName(job_, step_), ", attempt ",
                      AttemptName(attempt_.epoch, attempt_.save_number));
}

absl::Status SaveRound::CheckRanks(const std::string& node, std::vector<uint32_t> ranks) const {
  auto it = world_->ranks_of_node.find(node);
  if (it == world_->ranks_of_node.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", node, " has no rank in epoch ", world_->epoch, " of job ", job_));
  }
  std::sort(ranks.begin(), ranks.end());
  if (ranks != it->second) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", node, " reports for ", RanksToString(ranks), ", but in epoch ",
                     world_->epoch, " of job ", job_, " it has ", RanksToString(it->second)));
  }
  return absl::OkStatus();
}

absl::Status SaveRound::KeepFingerprint(uint32_t rank, const std::string& fingerprint) {
  if (fingerprint.size() != kFingerprintBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the fingerprint of rank ", rank, " has ",
                                                   fingerprint.size(), " bytes, not ",
                                                   kFingerprintBytes));
  }
  if (!fingerprints_[rank].empty() && fingerprints_[rank] != fingerprint) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " changed its layout within ", Describe(), "; save again"));
  }
  fingerprints_[rank] = fingerprint;
  return absl::OkStatus();
}

absl::Status SaveRound::GiveLayouts(const v1::PlanSaveRequest& request) {
  absl::Status status = CheckRanks(request.node(), RankNumbers(request.ranks()));
  if (!status.ok()) return status;
  for (const v1::RankLayout& rank : request.ranks()) {
    if (Sha256(rank.layout()) != rank.fingerprint()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the fingerprint of rank ", rank.rank(), " is not its layout's SHA-256"));
    }
    if (status = KeepFingerprint(rank.rank(), rank.fingerprint()); !status.ok()) return status;
    layouts_[rank.rank()] = rank.layout();
  }
  Part& part = parts_[request.node()];
  part.asked = part.gave_layouts = true;
  return absl::OkStatus();
}

absl::Status SaveRound::Staged(const v1::ReportStagedRequest& request) {
  absl::Status status = CheckRanks(request.node(), RankNumbers(request.ranks()));
  if (!status.ok()) return status;
  for (const v1::RankFingerprint& rank : request.ranks()) {
    if (status = KeepFingerprint(rank.rank(), rank.fingerprint()); !status.ok()) return status;
  }
  Part& part = parts_[request.node()];
  part.staged = true;
  part.plan_id = request.plan_id();
  return absl::OkStatus();
}

absl::Status SaveRound::Committed(v1::CommitSaveRequest request) {
  absl::Status status = CheckRanks(request.node(), RankNumbers(request.ranks()));
  if (status.ok()) status = CheckReport(request);
  if (!status.ok()) return Annotate(status, absl::StrCat("the report of node ", request.node()));
  const bool gave_layouts = !LacksLayouts(request);
  for (v1::RankLayout& rank : *request.mutable_ranks()) {
    if (status = KeepFingerprint(rank.rank(), rank.fingerprint()); !status.ok()) return status;
    if (rank.layout().empty()) continue;
    if (Sha256(rank.layout()) != rank.fingerprint()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the fingerprint of rank ", rank.rank(), " is not its layout's SHA-256"));
    }
    layouts_[rank.rank()] = std::move(*rank.mutable_layout());
  }
  Part& part = parts_[request.node()];
  part.gave_layouts |= gave_layouts;
  part.staged = true;
  part.plan_id = request.plan_id();
  part.report = std::move(request);
  return absl::OkStatus();
}

void SaveRound::MarkStaged(const std::string& node) {
  auto it = parts_.find(node);
  if (it != parts_.end()) it->second.staged = true;
}

void SaveRound::SetPlan(std::shared_ptr<const PlannedSave> plan) { plan_ = std::move(plan); }

void SaveRound::MarkPlanned(const std::string& node) { parts_[node].plan_id = plan_->plan_id; }

absl::Status SaveRound::CheckAgreement(const PlannedSave* known) const {
  std::set<std::string> plans;
  std::vector<uint32_t> waiting;
  for (const auto& [node, part] : parts_) {
    if (!part.plan_id.empty()) plans.insert(part.plan_id);
    if (part.plan_id.empty() && part.asked) {
      const auto& ranks = world_->ranks_of_node.at(node);
      waiting.insert(waiting.end(), ranks.begin(), ranks.end());
    }
  }
  if (plans.empty() || (plans.size() == 1 && waiting.empty())) return absl::OkStatus();
  const bool is_known = known != nullptr && plans.count(known->plan_id) > 0;
  if (plans.size() == 1 && !is_known) {
    const std::string meant = FingerprintPlanId();
    if (meant.empty() || meant == *plans.begin()) return absl::OkStatus();
  }
  return DisagreementError(std::move(waiting), is_known ? known : nullptr);
}

// `waiting`: the ranks that ask for a plan; `known`: that by which others save, or null.
absl::Status SaveRound::DisagreementError(std::vector<uint32_t> waiting,
                                          const PlannedSave* known) const {
  std::vector<uint32_t> changed;
  for (uint32_t rank = 0; known != nullptr && rank < fingerprints_.size(); ++rank) {
    if (!fingerprints_[rank].empty() &&
        (rank >= known->fingerprints.size() || fingerprints_[rank] != known->fingerprints[rank])) {
      changed.push_back(rank);
    }
  }
  std::sort(waiting.begin(), waiting.end());
  const std::string who = !changed.empty()      ? RanksToString(changed)
                          : waiting.size() == 1 ? RanksToString(waiting)
                          : waiting.empty()     ? "ranks"
                                                : absl::StrCat("some of ", RanksToString(waiting));
  return absl::FailedPreconditionError(absl::StrCat(
      who,
      " changed layout alone, while other ranks save by an earlier plan; the next save is "
      "planned anew"));
}

template <typename Predicate>
bool SaveRound::All(Predicate predicate) const {
  return std::all_of(parts_.begin(), parts_.end(),
                     [&](const auto& it) { return predicate(it.second); });
}

bool SaveRound::AllGaveLayouts() const {
  return All([](const Part& part) { return part.gave_layouts; });
}
bool SaveRound::AllStaged() const {
  return All([](const Part& part) { return part.staged; });
}
bool SaveRound::AllCommitted() const {
  return All([](const Part& part) { return part.report.has_value(); });
}

std::set<std::string> SaveRound::StagedNodes() const {
  std::set<std::string> nodes;
  for (const auto& [node, part] : parts_) {
    if (part.staged) nodes.insert(node);
  }
  return nodes;
}

std::string SaveRound::FingerprintPlanId() const {
  for (const std::string& fingerprint : fingerprints_) {
    if (fingerprint.empty()) return "";
  }
  return PlanId(fingerprints_);
}

std::vector<std::string> SaveRound::TakeLayouts() {
  return std::exchange(layouts_, std::vector<std::string>(world_->size()));
}

std::vector<v1::CommitSaveRequest> SaveRound::TakeReports() {
  std::vector<v1::CommitSaveRequest> reports;
  for (auto& [node, part] : parts_) {
    if (part.report.has_value()) reports.push_back(*std::move(part.report));
  }
  return reports;
}

std::string SaveRound::DescribeWaiting() const {
  const bool planning = std::any_of(parts_.begin(), parts_.end(), [](const auto& it) {
    return it.second.asked && it.second.plan_id.empty();
  });
  const char* phase = planning ? "plan" : !AllStaged() ? "snapshot" : "persist";
  std::string waiting;
  for (const auto& [node, part] : parts_) {
    const bool done = planning       ? part.gave_layouts
                      : !AllStaged() ? part.staged
                                     : part.report.has_value();
    if (done) continue;
    absl::StrAppend(&waiting, waiting.empty() ? "" : ", ",
                    RanksToString(world_->ranks_of_node.at(node)), " (node ", node, ")");
  }
  if (waiting.empty()) return "phase commit: waiting for storage";
  return absl::StrCat("phase ", phase, ": waiting for ", waiting);
}

}  // namespace ckptd
