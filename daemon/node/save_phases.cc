// The way of an attempt through its phases; see save_attempt.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/saves.h"
#include "daemon/node/snapshot_windows.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

// At most what the rank's small file takes of the arena: contents, header, paddings.
uint64_t MostSmallFileBytes(const RankPart& part) {
  // Of a header's entry, beside the name: numbers and punctuation; of the content, padding.
  constexpr uint64_t kEntryBytes = 256;
  constexpr uint64_t kMostEscapedBytes = 6;  // of one byte of a name
  uint64_t bytes = 0;
  for (size_t i = 0; i < part.small.size(); ++i) {
    bytes += part.small[i].size_bytes() + kEntryBytes +
             kMostEscapedBytes * part.layout->small[i].name.size();
  }
  return bytes == 0 ? 0 : RoundUp(bytes, kExtentAlignmentBytes) + kExtentAlignmentBytes;
}

// Windows are planned once, and must leave room for ranks that begin later, by a known plan.
struct SmallBytes {
  uint64_t known = 0;    // of the ranks that have begun
  uint64_t guessed = 0;  // of the others: each as much as the one that has most
};

SmallBytes MostSmallBytes(const std::map<uint32_t, RankPart>& ranks) {
  SmallBytes bytes;
  uint64_t most = 0;
  uint64_t absent = 0;
  for (const auto& [rank, part] : ranks) {
    const uint64_t of_rank = MostSmallFileBytes(part);
    bytes.known += of_rank;
    most = std::max(most, of_rank);
    absent += part.begun ? 0 : 1;
  }
  bytes.guessed = absent * most;
  return bytes;
}

absl::StatusOr<NodePlanPtr> MakePlan(const std::map<uint32_t, CheckedLayoutPtr>& layouts,
                                     const v1::PlanSaveResponse& response) {
  auto plan = std::make_shared<NodePlan>();
  plan->plan_id = response.plan_id();
  for (const v1::RankPlan& rank_plan : response.ranks()) {
    auto layout = layouts.find(rank_plan.rank());
    if (layout == layouts.end()) {
      return absl::InternalError(absl::StrCat("the coordinator's plan names rank ",
                                              rank_plan.rank(), ", which is not of this node"));
    }
    absl::StatusOr<TensorImagePtr> image = LayOutTensors(*layout->second, rank_plan);
    if (!image.ok()) return image.status();
    plan->images[rank_plan.rank()] = *std::move(image);
  }
  for (const auto& [rank, layout] : layouts) {
    plan->fingerprints[rank] = layout->fingerprint;
    // A rank without pieces may be left out.
    if (!plan->images.contains(rank)) plan->images[rank] = std::make_shared<TensorImage>();
  }
  return NodePlanPtr(std::move(plan));
}

}  // namespace

void Saves::Advance(const SaveAttemptPtr& attempt, Later& later) {
  if (!attempt->in_flight()) return;
  AdvancePlan(attempt, later);
  if (attempt->plan == nullptr || !attempt->in_flight()) return;
  AdvanceLeases(attempt, later);
  if (!attempt->in_flight()) return;
  AnswerReadyRanks(attempt, later);
  if (!attempt->all_finished()) return;
  if (attempt->phase < v1::SAVE_PHASE_PERSIST) {
    environment_.probe.SnapshotFinished(
        absl::ToDoubleSeconds(attempt->snapshot_finished - attempt->started), attempt->bytes());
    attempt->ticket.reset();
    SetPhase(*attempt, v1::SAVE_PHASE_PERSIST, later);
    ReportStaged(attempt, later);
  }
  if (attempt->files_in_flight == 0 && !attempt->commit_sent) {
    attempt->persist_finished = environment_.clock.Now();
    environment_.probe.PersistFinished(
        absl::ToDoubleSeconds(attempt->persist_finished - attempt->snapshot_finished),
        attempt->bytes());
    SetPhase(*attempt, v1::SAVE_PHASE_COMMIT, later);
    Commit(attempt, /*with_layouts=*/false, later);
  }
}

// The known plan at once, if the first ranks match it; else a new one, when all
// ranks have begun.
void Saves::AdvancePlan(const SaveAttemptPtr& attempt, Later& later) {
  if (attempt->plan != nullptr || attempt->plan_requested) return;
  const auto matches = [&](const auto& entry) {
    const auto& [rank, part] = entry;
    auto known = attempt->earlier_plan->fingerprints.find(rank);
    return part.begun && known != attempt->earlier_plan->fingerprints.end() &&
           known->second == part.layout->fingerprint;
  };
  if (attempt->earlier_plan != nullptr &&
      attempt->earlier_plan->fingerprints.size() == attempt->ranks.size() &&
      std::any_of(attempt->ranks.begin(), attempt->ranks.end(), matches)) {
    attempt->plan = attempt->earlier_plan;
    attempt->plan_from_cache = true;
    return;
  }
  if (!attempt->all_begun()) return;
  attempt->plan_requested = true;
  v1::PlanSaveRequest request;
  request.set_job(attempt->key.job);
  *request.mutable_attempt() = attempt->AttemptProto();
  request.set_step(attempt->step);
  request.set_node(options_.node_name);
  request.set_overwrite(attempt->overwrite);
  request.set_timeout_seconds(SecondsLeft(*attempt));
  for (v1::RankLayout& layout : attempt->RankLayouts(true)) {
    *request.add_ranks() = std::move(layout);
  }
  std::map<uint32_t, CheckedLayoutPtr> layouts;
  for (const auto& [rank, part] : attempt->ranks) layouts[rank] = part.layout;
  later.Add([this, attempt, layouts = std::move(layouts), request = std::move(request)]() mutable {
    environment_.coordinator.PlanSave(
        std::move(request), scope_.Wrap([this, attempt, layouts = std::move(layouts)](
                                            absl::StatusOr<v1::PlanSaveResponse> response) {
          if (!response.ok()) return Planned(attempt, response.status(), ToldBy::kCoordinator);
          // Laying out a large plan takes a while: not under the lock.
          Planned(attempt, MakePlan(layouts, *response), ToldBy::kUs);
        }));
  });
}

void Saves::Planned(const SaveAttemptPtr& attempt, absl::StatusOr<NodePlanPtr> plan,
                    ToldBy told_by) {
  Later later;
  absl::MutexLock lock(&mutex_);
  if (!attempt->in_flight()) return;
  if (!plan.ok()) return Fail(attempt, Annotate(plan.status(), "planning"), told_by, later);
  attempt->plan = *std::move(plan);
  memory_.SetPlan(attempt->key.job, attempt->key.epoch, attempt->plan);
  Advance(attempt, later);
}

void Saves::AdvanceLeases(const SaveAttemptPtr& attempt, Later& later) {
  if (!std::exchange(attempt->tensors_requested, true)) LeaseTensors(attempt, later);
  if (!attempt->tensors_leased) return;
  for (auto& [rank, part] : attempt->ranks) {
    if (!part.begun || part.small_decided) continue;
    LeaseSmall(attempt, rank, later);
    if (!attempt->in_flight()) return;  // it was too much
  }
}

void Saves::LeaseTensors(const SaveAttemptPtr& attempt, Later& later) {
  std::vector<uint64_t> sizes;
  std::vector<uint32_t> ranks;
  for (const auto& [rank, part] : attempt->ranks) {
    const uint64_t bytes = attempt->plan->images.at(rank)->image_bytes();
    if (bytes == 0) continue;
    sizes.push_back(bytes);
    ranks.push_back(rank);
  }
  // Its place in the arena's order is from here on, when it can say how much it needs: an
  // earlier place would bind no later attempt to leave it room.
  attempt->ticket = arena_.Open(attempt->world.job, attempt->Describe(options_.node_name));
  const SmallBytes small = MostSmallBytes(attempt->ranks);
  if (sizes.empty()) {
    attempt->ticket->Expect(std::min(small.known + small.guessed, arena_.total_bytes()));
    attempt->tensors_leased = true;
    return;
  }
  absl::StatusOr<SnapshotWindows> windows =
      PlanWindows(sizes, small.known + small.guessed, arena_.total_bytes());
  // A save is not refused for a guess.
  if (!windows.ok()) windows = PlanWindows(sizes, small.known, arena_.total_bytes());
  if (!windows.ok()) return Fail(attempt, windows.status(), ToldBy::kUs, later);
  attempt->window_bytes = windows->window_bytes;
  std::vector<ExtentAsk> asks;
  if (attempt->window_bytes == 0) {
    attempt->ticket->Expect(windows->expected_bytes);
    for (uint64_t bytes : sizes) asks.push_back({.bytes = bytes});
  } else {
    attempt->ticket->ExpectRevolving(windows->expected_bytes);
    for (uint64_t bytes : sizes) asks.push_back({.bytes = std::min(bytes, attempt->window_bytes)});
  }
  for (uint32_t rank : ranks) OpenRankFile(attempt, rank, /*is_small=*/false, later);
  auto leased = [this, attempt, ranks = std::move(ranks)](
                    absl::StatusOr<std::vector<ArenaLeasePtr>> leases) mutable {
    Later after;
    absl::MutexLock lock(&mutex_);
    if (!leases.ok()) return Fail(attempt, leases.status(), ToldBy::kUs, after);
    if (!attempt->in_flight()) return;
    for (size_t i = 0; i < ranks.size(); ++i) {
      attempt->ranks.at(ranks[i]).tensors = std::move((*leases)[i]);
    }
    attempt->tensors_leased = true;
    Advance(attempt, after);
  };
  later.Add([this, ticket = attempt->ticket, asks = std::move(asks), deadline = attempt->deadline,
             leased = std::move(leased)]() mutable {
    arena_.Acquire(std::move(ticket), std::move(asks), deadline, std::move(leased));
  });
}

void Saves::LeaseSmall(const SaveAttemptPtr& attempt, uint32_t rank, Later& later) {
  RankPart& part = attempt->ranks.at(rank);
  part.small_decided = true;
  std::vector<uint64_t> sizes;
  for (const v1::SmallContent& content : part.small) sizes.push_back(content.size_bytes());
  absl::StatusOr<SmallImage> image =
      LayOutSmall(*part.layout, rank, sizes, attempt->HoldContents(rank));
  if (!image.ok()) return Fail(attempt, image.status(), ToldBy::kUs, later);
  part.small_image = *std::move(image);
  if (part.small_image.file == nullptr) {
    part.small_leased = true;
    return;
  }
  OpenRankFile(attempt, rank, /*is_small=*/true, later);
  later.Add([this, attempt, rank, ticket = attempt->ticket, bytes = part.small_image.image_bytes(),
             deadline = attempt->deadline]() mutable {
    auto leased = [this, attempt, rank](absl::StatusOr<std::vector<ArenaLeasePtr>> leases) {
      Later after;
      absl::MutexLock lock(&mutex_);
      if (!leases.ok()) return Fail(attempt, leases.status(), ToldBy::kUs, after);
      if (!attempt->in_flight()) return;
      RankPart& leased_part = attempt->ranks.at(rank);
      leased_part.small_lease = std::move(leases->front());
      leased_part.small_leased = true;
      Advance(attempt, after);
    };
    arena_.Acquire(std::move(ticket), {{.bytes = bytes}}, deadline, std::move(leased));
  });
}

void Saves::OpenRankFile(const SaveAttemptPtr& attempt, uint32_t rank, bool is_small,
                         Later& later) {
  ++attempt->files_in_flight;
  const std::string& store_path = options_.stores.at(attempt->world.store);
  FileToPersist file = is_small ? attempt->SmallFile(rank, options_.node_name, store_path)
                                : attempt->TensorFile(rank, options_.node_name, store_path);
  later.Add([this, attempt, rank, is_small, file = std::move(file)]() mutable {
    std::shared_ptr<OpenFile> open = persister_.Open(
        std::move(file), [this, attempt, rank, is_small](absl::StatusOr<PersistedFile> persisted) {
          FilePersisted(attempt, rank, is_small, std::move(persisted));
        });
    {
      absl::MutexLock lock(&mutex_);
      if (attempt->in_flight()) {
        RankPart& part = attempt->ranks.at(rank);
        (is_small ? part.small_file : part.tensor_file) = std::move(open);
        return;
      }
    }
    persister_.Abandon(attempt->progress);  // its end came before there was this file
  });
}

void Saves::AnswerReadyRanks(const SaveAttemptPtr& attempt, Later& later) {
  if (!attempt->tensors_leased) return;
  bool all_answered = true;
  for (auto& [rank, part] : attempt->ranks) {
    if (part.begun && part.small_leased && !part.answered) {
      part.answered = true;
      later.Answer(std::move(part.answer), attempt->Answer(rank));
    }
    all_answered &= part.answered;
  }
  if (!all_answered || attempt->phase != v1::SAVE_PHASE_PLAN) return;
  if (attempt->window_bytes == 0) attempt->ticket.reset();  // it has all that it needs
  environment_.probe.PlanFinished(
      absl::ToDoubleSeconds(environment_.clock.Now() - attempt->started), attempt->plan_from_cache);
  SetPhase(*attempt, v1::SAVE_PHASE_SNAPSHOT, later);
}

void Saves::GiveUp(ArenaLeasePtr& window, const std::shared_ptr<OpenFile>& file, Later& later) {
  if (window == nullptr) return;
  later.Add(
      [file, window = std::exchange(window, nullptr)]() mutable { file->Add(std::move(window)); });
}

void Saves::PersistRank(const SaveAttemptPtr& attempt, uint32_t rank, Later& later) {
  RankPart& part = attempt->ranks.at(rank);
  GiveUp(part.tensors, part.tensor_file, later);
  GiveUp(part.small_lease, part.small_file, later);
}

void Saves::FilePersisted(const SaveAttemptPtr& attempt, uint32_t rank, bool is_small,
                          absl::StatusOr<PersistedFile> file) {
  Later later;
  absl::MutexLock lock(&mutex_);
  --attempt->files_in_flight;
  if (!file.ok()) return Fail(attempt, file.status(), ToldBy::kUs, later);
  if (!attempt->in_flight()) {
    // It was given up while the file's last step ran.
    later.Add([this, attempt, path = file->file.path()] { RemoveFiles(*attempt, {path}); });
    return;
  }
  // Before anybody learns that the file is durable: its memory is not in use any more.
  if (options_.keep_images && file->image != nullptr) {
    kept_.Keep({attempt->world.store, attempt->key.job, file->file.path()}, std::move(file->image));
  }
  file->image.reset();
  attempt->AddFile(rank, is_small, *std::move(file));
  Advance(attempt, later);
}

void Saves::ReportStaged(const SaveAttemptPtr& attempt, Later& later) {
  v1::ReportStagedRequest request;
  request.set_job(attempt->key.job);
  *request.mutable_attempt() = attempt->AttemptProto();
  request.set_step(attempt->step);
  request.set_node(options_.node_name);
  request.set_plan_id(attempt->plan->plan_id);
  request.set_timeout_seconds(SecondsLeft(*attempt));
  for (const v1::RankLayout& layout : attempt->RankLayouts(false)) {
    v1::RankFingerprint* rank = request.add_ranks();
    rank->set_rank(layout.rank());
    rank->set_fingerprint(layout.fingerprint());
  }
  later.Add([this, attempt, request = std::move(request)]() mutable {
    environment_.coordinator.ReportStaged(
        std::move(request),
        scope_.Wrap([this, attempt](absl::StatusOr<v1::ReportStagedResponse> response) {
          // The coordinator away: the commit, which waits longer, decides.
          if (response.ok() || IsRetryable(response.status()) ||
              absl::IsDeadlineExceeded(response.status())) {
            return;
          }
          Later after;
          absl::MutexLock lock(&mutex_);
          // Once the commit was asked for, its answer says whether the files are named.
          if (attempt->commit_sent) return;
          // As after a refused commit: another node may have changed its layout.
          memory_.ForgetPlan(attempt->key.job, attempt->key.epoch);
          Fail(attempt, response.status(), ToldBy::kCoordinator, after);
        }));
  });
}

void Saves::Commit(const SaveAttemptPtr& attempt, bool with_layouts, Later& later) {
  attempt->commit_sent = true;
  v1::CommitSaveRequest request = attempt->CommitRequest(options_.node_name, with_layouts);
  request.set_timeout_seconds(SecondsLeft(*attempt));
  later.Add([this, attempt, request = std::move(request)]() mutable {
    environment_.coordinator.CommitSave(
        std::move(request),
        scope_.Wrap([this, attempt](absl::StatusOr<v1::CommitSaveResponse> response) {
          Committed(attempt, std::move(response));
        }));
  });
}

void Saves::Committed(const SaveAttemptPtr& attempt,
                      absl::StatusOr<v1::CommitSaveResponse> response) {
  Later later;
  absl::MutexLock lock(&mutex_);
  if (!attempt->in_flight()) return;
  if (!response.ok()) {
    // Another node may have changed its layout: the next save plans anew.
    memory_.ForgetPlan(attempt->key.job, attempt->key.epoch);
    return Fail(attempt, Annotate(response.status(), "committing"), ToldBy::kCoordinator, later);
  }
  if (response->need_layouts()) return Commit(attempt, /*with_layouts=*/true, later);
  const absl::Time now = environment_.clock.Now();
  environment_.probe.CommitFinished(absl::ToDoubleSeconds(now - attempt->persist_finished));
  environment_.probe.SaveDurable(absl::ToDoubleSeconds(now - attempt->started), attempt->bytes(),
                                 now);
  worlds_.SetCommitted(attempt->key.job, attempt->step, true);
  SetPhase(*attempt, v1::SAVE_PHASE_DURABLE, later);
  Ended(attempt);
}

}  // namespace ckptd
