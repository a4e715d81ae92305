// Snapshots of states that are larger than the arena: each rank's tensor image goes through it
// window by window, and what was copied is written while the trainer copies on.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/admission.h"
#include "daemon/node/limits.h"
#include "daemon/node/saves.h"
#include "daemon/node/snapshot_windows.h"

namespace ckptd {
namespace {

absl::Status NoWindow(const absl::Status& why, uint32_t rank, uint64_t taken_bytes,
                      uint64_t image_bytes, bool is_paused) {
  return absl::Status(
      why.code(),
      absl::StrCat("rank ", rank, " has copied ", BytesForPeople(taken_bytes), " of its ",
                   BytesForPeople(image_bytes), " and needs room for more: ", why.message(),
                   is_paused ? "; writing to storage, which makes room, is paused on this node: "
                               "end that with ckptctl resume"
                             : ""));
}

}  // namespace

void Saves::ExtendSnapshot(const SessionPtr& session, const v1::ExtendSnapshotRequest& request,
                           Done<v1::ExtendSnapshotResponse> done) {
  const absl::StatusOr<absl::Duration> timeout = CheckTimeout(request.timeout_seconds());
  if (!timeout.ok()) return std::move(done)(timeout.status());
  Later later;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<SaveAttemptPtr> found = FindFor(*session, request.job(), request.attempt());
  if (!found.ok()) return later.Answer(std::move(done), found.status());
  SaveAttempt& attempt = **found;
  const auto mine = std::find_if(attempt.ranks.begin(), attempt.ranks.end(),
                                 [&](auto& entry) { return entry.second.session == session->id; });
  const uint32_t rank = mine->first;
  if (absl::Status status = CheckExtension(attempt, rank, request); !status.ok()) {
    return later.Answer(std::move(done), status);
  }
  mine->second.extend_done = std::move(done);
  GiveWindow(*found, rank, later);
  RequestWindow(*found, rank, std::min(attempt.deadline, environment_.clock.Now() + *timeout),
                later);
}

absl::Status Saves::CheckExtension(const SaveAttempt& attempt, uint32_t rank,
                                   const v1::ExtendSnapshotRequest& request) const {
  if (!attempt.error.ok()) return attempt.error;
  const RankPart& part = attempt.ranks.at(rank);
  if (part.extend_done != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " waits for the next part of its image already"));
  }
  const bool has_window =
      attempt.in_flight() && part.answered && !part.finished && part.tensors != nullptr;
  if (!has_window) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " has no part of its image to go on from"));
  }
  const uint64_t leased = attempt.LeasedEnd(rank);
  if (leased >= attempt.plan->images.at(rank)->image_bytes()) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", rank, " has its image to the end already"));
  }
  if (request.copied_bytes() != leased) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " has copied up to byte ", request.copied_bytes(),
                     " of its image, and its lease ends at ", leased));
  }
  return absl::OkStatus();
}

void Saves::GiveWindow(const SaveAttemptPtr& attempt, uint32_t rank, Later& later) {
  RankPart& part = attempt->ranks.at(rank);
  part.window_offset = attempt->LeasedEnd(rank);
  GiveUp(part.tensors, part.tensor_file, later);
}

void Saves::RequestWindow(const SaveAttemptPtr& attempt, uint32_t rank, absl::Time deadline,
                          Later& later) {
  const uint64_t left =
      attempt->plan->images.at(rank)->image_bytes() - attempt->ranks.at(rank).window_offset;
  later.Add([this, attempt, rank, ticket = attempt->ticket, deadline,
             bytes = std::min(attempt->window_bytes, left)]() mutable {
    arena_.Acquire(std::move(ticket), {{.bytes = bytes}}, deadline,
                   [this, attempt, rank](absl::StatusOr<std::vector<ArenaLeasePtr>> leases) {
                     WindowLeased(attempt, rank, std::move(leases));
                   });
  });
}

void Saves::WindowLeased(const SaveAttemptPtr& attempt, uint32_t rank,
                         absl::StatusOr<std::vector<ArenaLeasePtr>> leases) {
  Later later;
  absl::MutexLock lock(&mutex_);
  if (!attempt->in_flight()) return;  // its end has answered
  RankPart& part = attempt->ranks.at(rank);
  const uint64_t image_bytes = attempt->plan->images.at(rank)->image_bytes();
  if (!leases.ok()) {
    return Fail(
        attempt,
        NoWindow(leases.status(), rank, part.window_offset, image_bytes, persister_.paused()),
        ToldBy::kUs, later);
  }
  part.tensors = std::move(leases->front());
  v1::ExtendSnapshotResponse response;
  *response.mutable_tensors() = part.tensors->ToProto(image_bytes, part.window_offset);
  later.Answer(std::exchange(part.extend_done, nullptr), std::move(response));
}

}  // namespace ckptd
