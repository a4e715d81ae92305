// How loads end, and what is left of them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/limits.h"
#include "daemon/node/loads.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

// For the arena's own answer at a load's deadline.
constexpr absl::Duration kArenaSaysWho = absl::Seconds(1);

}  // namespace

void Loads::EndLoad(const SessionPtr& session, const v1::EndLoadRequest& request,
                    Done<v1::EndLoadResponse> done) {
  Later later;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<std::pair<LoadPtr, RankLoad*>> found = FindFor(*session, request.load_id());
  if (!found.ok()) return later.Answer(std::move(done), found.status());
  const auto& [load, rank] = *found;
  if (!request.error().empty() && load->error.ok()) {
    environment_.probe.Warning(
        absl::StrCat(Describe(*load), ": process ", rank->process_id,
                     " gave up: ", CutText(request.error(), kLongestErrorBytes)));
  }
  EndRank(load, *rank, later);
  later.Answer(std::move(done), v1::EndLoadResponse());
}

void Loads::EndRank(const LoadPtr& load, RankLoad& rank, Later& later) {
  if (std::exchange(rank.ended, true)) return;
  by_id_.erase(rank.load_id);
  const absl::Status cancelled = absl::CancelledError("the load was ended");
  if (rank.begin_done) later.Answer(std::exchange(rank.begin_done, nullptr), cancelled);
  if (rank.next_done) {
    alarms_.Cancel(rank.next_alarm);
    later.Answer(std::exchange(rank.next_done, nullptr), cancelled);
  }
  for (auto& [window, read] : std::exchange(rank.ready, {})) GiveBack(*load, read);
  for (auto& [id, read] : std::exchange(rank.held, {})) GiveBack(*load, read);
  Pump(load, later);
  AnswerAllNext(*load, later);
  ForgetIfOver(load, later);
}

void Loads::SessionEnded(const Session& session) {
  Later later;
  absl::MutexLock lock(&mutex_);
  std::vector<LoadPtr> all;
  for (const auto& [key, load] : loads_) all.push_back(load);
  for (const LoadPtr& load : all) {
    for (auto& [rank, part] : load->ranks) {
      if (part.session != session.id || part.ended) continue;
      if (load->plan == nullptr) {
        Fail(load,
             absl::AbortedError(absl::StrCat("rank ", rank, " (process ", part.process_id,
                                             ") has ended before the load was planned")),
             later);
      }
      EndRank(load, part, later);
    }
  }
}

void Loads::Fail(const LoadPtr& load, const absl::Status& why, Later& later) {
  if (!load->error.ok() || load->reported) return;
  load->error = Annotate(why, Describe(*load));
  environment_.probe.RestoreFailed(why.code());
  environment_.probe.Warning(load->error.message());
  for (auto& [rank, part] : load->ranks) {
    if (part.begin_done) {
      // It never learns its load id: nothing will come from it.
      later.Answer(std::exchange(part.begin_done, nullptr), load->error);
      by_id_.erase(part.load_id);
      part.ended = true;
    }
    if (!part.begun) part.ended = true;
    for (auto& [window, read] : std::exchange(part.ready, {})) GiveBack(*load, read);
  }
  AnswerAllNext(*load, later);
  Report(*load, later);
  ReclaimLater(load);
  ForgetIfOver(load, later);
}

void Loads::DeadlinePassed(const LoadPtr& load) {
  Later later;
  absl::MutexLock lock(&mutex_);
  if (load->ticket != nullptr && environment_.clock.Now() < load->deadline + kArenaSaysWho) {
    // The arena's deadline is the same, and it names who holds it. Looked at again in case
    // that it grants instead.
    load->alarm =
        alarms_.At(load->deadline + kArenaSaysWho, [this, load] { DeadlinePassed(load); });
    return;
  }
  Fail(load, absl::DeadlineExceededError(DescribeWait(*load)), later);
}

void Loads::ReclaimLater(const LoadPtr& load) {
  // Not the load itself: an alarm may outlive the arena.
  alarms_.At(environment_.clock.Now() + kReclaimAfter, [this, weak = std::weak_ptr<Load>(load)] {
    if (const LoadPtr held = weak.lock(); held != nullptr) Reclaim(held);
  });
}

void Loads::Reclaim(const LoadPtr& load) {
  Later later;
  absl::MutexLock lock(&mutex_);
  for (auto& [rank, part] : load->ranks) {
    if (part.ended) continue;
    if (!part.held.empty()) {
      environment_.probe.Warning(absl::StrCat(
          Describe(*load), " has failed, and rank ", rank, " (process ", part.process_id,
          ") has not given its windows back: their memory is taken out of use"));
      for (const ArenaLeasePtr& slot : load->slots) slot->Quarantine();
      for (const auto& [window, read] : part.held) {
        if (read->image != nullptr) read->image->Quarantine();
      }
    }
    EndRank(load, part, later);
  }
}

void Loads::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
}

void Loads::Report(Load& load, Later& later) {
  if (std::exchange(load.reported, true)) return;
  alarms_.Cancel(load.alarm);
  const absl::Time now = environment_.clock.Now();
  const double seconds = absl::ToDoubleSeconds(now - load.started);
  const uint64_t bytes_read = load.reader == nullptr ? 0 : load.reader->bytes_read();
  if (load.error.ok()) {
    if (load.plan != nullptr) {
      environment_.probe.RestoreTransferred(absl::ToDoubleSeconds(now - load.planned));
    }
    environment_.probe.RestoreFinished(seconds, bytes_read, load.bytes_from_arena);
  }
  v1::FinishLoadRequest report;
  report.set_job(load.world.job);
  report.set_epoch(load.world.epoch);
  report.set_load_number(std::get<2>(load.key));
  report.set_node(options_.node_name);
  if (load.plan != nullptr) report.set_step(load.plan->step());
  report.set_bytes_read(bytes_read);
  report.set_seconds(seconds);
  report.set_error_code(static_cast<int>(load.error.code()));
  report.set_error_message(std::string(load.error.message()));
  later.Add([this, report = std::move(report)]() mutable {
    // For the event log only; nothing depends on the answer.
    environment_.coordinator.FinishLoad(std::move(report),
                                        [](absl::StatusOr<v1::FinishLoadResponse>) {});
  });
}

void Loads::ForgetIfOver(const LoadPtr& load, Later& later) {
  const bool over = std::all_of(load->ranks.begin(), load->ranks.end(),
                                [](const auto& entry) { return entry.second.ended; });
  if (!over) return;
  Report(*load, later);
  if (load->in_flight > 0) return;  // called again when the last read is back
  load->slots.clear();
  load->ticket.reset();
  if (auto found = loads_.find(load->key); found != loads_.end() && found->second == load) {
    loads_.erase(found);
  }
}

void Loads::Stop() {
  {
    Later later;
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    std::vector<LoadPtr> all;
    for (const auto& [key, load] : loads_) all.push_back(load);
    for (const LoadPtr& load : all) {
      Fail(load, absl::UnavailableError("the node daemon is shutting down"), later);
    }
  }
  executor_.Stop();
}

}  // namespace ckptd
