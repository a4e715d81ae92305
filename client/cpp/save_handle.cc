#include "client/cpp/save_handle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/layout.h"
#include "proto/rpc/save_phase.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

constexpr absl::Duration kFinishTimeout = absl::Seconds(30);
constexpr absl::Duration kListTimeout = absl::Seconds(10);
// How long a waiting handle looks for a daemon that went away.
constexpr absl::Duration kLongestAbsence = absl::Seconds(30);
constexpr absl::Duration kRetryInterval = absl::Milliseconds(200);

bool IsFinal(const v1::SaveStatus& status) {
  return status.phase() == v1::SAVE_PHASE_DURABLE || status.phase() == v1::SAVE_PHASE_FAILED;
}

v1::SaveStatus FailedStatus(const absl::Status& error) {
  v1::SaveStatus status;
  status.set_phase(v1::SAVE_PHASE_FAILED);
  status.set_error_code(static_cast<int>(error.code()));
  status.set_error_message(std::string(error.message()));
  return status;
}

}  // namespace

SaveHandle::SaveHandle(std::shared_ptr<NodeLink> link, std::shared_ptr<NodeConnection> connection,
                       Name name, absl::Time started)
    : link_(std::move(link)),
      connection_(std::move(connection)),
      name_(std::move(name)),
      started_(started) {}

std::string SaveHandle::Describe() const {
  return absl::StrCat("step ", name_.step, " of job ", Printable(name_.job));
}

absl::Status SaveHandle::WaitSnapshot(absl::Duration timeout) {
  if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
  absl::MutexLock lock(&mutex_);
  if (!snapshot_ended_) {
    waiting_since_ = absl::Now();
    const bool ended = mutex_.AwaitWithTimeout(absl::Condition(&snapshot_ended_), timeout);
    if (waiting_since_ != absl::InfiniteFuture()) blocked_ += absl::Now() - waiting_since_;
    waiting_since_ = absl::InfiniteFuture();
    if (!ended) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", link_->options().rank, " has not copied ", Describe(),
                       " into the arena within ", absl::FormatDuration(timeout)));
    }
  }
  return snapshot_status_;
}

absl::Status SaveHandle::WaitDurable(absl::Duration timeout) {
  const absl::Time until = absl::Now() + timeout;
  // Why the snapshot failed is also why the save did.
  if (absl::Status copied = WaitSnapshot(timeout); !copied.ok()) return copied;
  const absl::StatusOr<v1::SaveStatus> status =
      Ask(v1::SAVE_PHASE_DURABLE, std::max(absl::ZeroDuration(), until - absl::Now()));
  if (!status.ok()) return status.status();
  if (status->phase() == v1::SAVE_PHASE_DURABLE) return absl::OkStatus();
  if (status->phase() == v1::SAVE_PHASE_FAILED) return Failure(*status);
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(), " is not durable after ", absl::FormatDuration(timeout), "; it is in phase ",
      SavePhaseName(status->phase()), " on node ", connection_->node()));
}

absl::StatusOr<v1::SaveStatus> SaveHandle::Status() {
  if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
  {
    absl::MutexLock lock(&mutex_);
    if (IsFinal(final_status_)) return final_status_;
    if (!snapshot_ended_) {
      v1::SaveStatus copying;
      copying.set_phase(v1::SAVE_PHASE_SNAPSHOT);
      return copying;
    }
    if (!snapshot_status_.ok()) return FailedStatus(snapshot_status_);
  }
  return Ask(v1::SAVE_PHASE_DURABLE, absl::ZeroDuration());
}

absl::StatusOr<v1::SaveStatus> SaveHandle::Ask(v1::SavePhase until, absl::Duration timeout) {
  const absl::Time give_up = absl::Now() + timeout;
  v1::WaitSaveRequest request;
  request.set_job(name_.job);
  *request.mutable_attempt() = name_.attempt;
  request.set_until(until);
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      if (IsFinal(final_status_)) return final_status_;
    }
    const absl::Duration left = std::max(absl::ZeroDuration(), give_up - absl::Now());
    request.set_timeout_seconds(absl::ToDoubleSeconds(left));
    v1::SaveStatus response;
    absl::Status status = connection_->WaitSave(request, &response, left);
    if (status.ok()) {
      Keep(response);
      return response;
    }
    if (!IsConnectionLost(status)) {
      return Annotate(status, absl::StrCat("asking for ", Describe()));
    }
    if (absl::Status found = FindDaemonAgain(status, left); !found.ok()) return found;
  }
}

absl::Status SaveHandle::FindDaemonAgain(const absl::Status& lost, absl::Duration patience) {
  const absl::Time give_up = absl::Now() + std::min(patience, kLongestAbsence);
  for (;;) {
    const absl::StatusOr<std::shared_ptr<NodeConnection>> again =
        link_->Reconnect(connection_, lost);
    if (again.ok() && (*again)->instance_id() != connection_->instance_id()) {
      Keep(FateAfterRestart(**again));
      return absl::OkStatus();
    }
    const bool session_gone = again.ok() && *again != connection_;
    if (session_gone || absl::Now() >= give_up) {
      return absl::UnavailableError(absl::StrCat(
          "waiting for ", Describe(), ": the node daemon can't be asked (", lost.message(),
          "); if it was restarted before the step was durable, save again"));
    }
    absl::SleepFor(kRetryInterval);
    if (again.ok()) return absl::OkStatus();  // it lives, and only refused that call: ask again
  }
}

v1::SaveStatus SaveHandle::FateAfterRestart(NodeConnection& connection) {
  v1::ListCheckpointsRequest request;
  request.set_job(name_.job);
  v1::ListCheckpointsResponse response;
  const absl::Status listed = connection.ListCheckpoints(request, &response, kListTimeout);
  for (const v1::CheckpointSummary& checkpoint : response.checkpoints()) {
    if (listed.ok() && checkpoint.step() == name_.step &&
        checkpoint.attempt().epoch() == name_.attempt.epoch() &&
        checkpoint.attempt().save_number() == name_.attempt.save_number()) {
      v1::SaveStatus durable;
      durable.set_phase(v1::SAVE_PHASE_DURABLE);
      durable.set_bytes(checkpoint.size_bytes());
      return durable;
    }
  }
  return FailedStatus(absl::AbortedError(absl::StrCat("the node daemon was restarted before step ",
                                                      name_.step, " of job ", Printable(name_.job),
                                                      " was durable; save again")));
}

void SaveHandle::Keep(const v1::SaveStatus& status) {
  if (!IsFinal(status)) return;
  absl::MutexLock lock(&mutex_);
  if (!IsFinal(final_status_)) final_status_ = status;
}

absl::Status SaveHandle::Failure(const v1::SaveStatus& status) const {
  const absl::Status error = StatusFromWire(status.error_code(), status.error_message());
  return error.ok() ? absl::UnknownError(absl::StrCat("saving ", Describe(), " failed")) : error;
}

void SaveHandle::EndBlocking() {
  absl::MutexLock lock(&mutex_);
  blocked_ += absl::Now() - started_;
}

double SaveHandle::BlockedSeconds() {
  absl::MutexLock lock(&mutex_);
  absl::Duration blocked = blocked_;
  if (waiting_since_ != absl::InfiniteFuture()) blocked += absl::Now() - waiting_since_;
  return absl::ToDoubleSeconds(blocked);
}

absl::StatusOr<LeasedImage> SaveHandle::ExtendLease(uint64_t copied_bytes, absl::Duration timeout,
                                                    OnInterrupt on_interrupt) {
  v1::ExtendSnapshotRequest request;
  request.set_job(name_.job);
  *request.mutable_attempt() = name_.attempt;
  request.set_copied_bytes(copied_bytes);
  request.set_timeout_seconds(absl::ToDoubleSeconds(timeout));
  v1::ExtendSnapshotResponse response;
  if (absl::Status extended =
          connection_->ExtendSnapshot(request, &response, timeout, on_interrupt);
      !extended.ok()) {
    return Annotate(extended, absl::StrCat("copying ", Describe(), " into the arena"));
  }
  return LeasedImage::Map(response.tensors(),
                          [this](uint64_t slab_id) { return connection_->Slab(slab_id); });
}

void SaveHandle::EndSnapshot(absl::Status copied) {
  const absl::Status told = TellNode(copied);
  if (copied.ok()) copied = told;
  absl::MutexLock lock(&mutex_);
  snapshot_status_ = std::move(copied);
  snapshot_ended_ = true;
}

absl::Status SaveHandle::TellNode(const absl::Status& copied) {
  v1::FinishSnapshotRequest request;
  request.set_job(name_.job);
  *request.mutable_attempt() = name_.attempt;
  if (!copied.ok()) request.set_error(std::string(copied.message()));
  request.set_blocked_seconds(BlockedSeconds());
  const absl::Status told = connection_->FinishSnapshot(request, kFinishTimeout);
  if (!IsConnectionLost(told)) {
    return Annotate(told, absl::StrCat("ending the snapshot of ", Describe()));
  }
  return absl::AbortedError(absl::StrCat("the node daemon went away (", told.message(), ") before ",
                                         Describe(), " was durable; save again"));
}

}  // namespace ckptd
