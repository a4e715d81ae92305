#include "daemon/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/names.h"
#include "daemon/coordinator/storage_places.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

constexpr size_t kQueueLimit = 4096;
constexpr int kPlannerThreads = 2;

}  // namespace

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(CoordinatorOptions options,
                                                                 FileSystem& file_system,
                                                                 const Clock& clock, Alarms& alarms,
                                                                 CoordinatorProbe& probe) {
  if (options.stores.empty()) {
    return absl::InvalidArgumentError("a coordinator needs at least one store");
  }
  absl::StatusOr<std::unique_ptr<Catalog>> catalog = OpenCatalog(options.catalog_path);
  if (!catalog.ok()) return catalog.status();
  absl::StatusOr<Reconciled> reconciled = ReconcileCatalog(file_system, **catalog, options.stores);
  if (!reconciled.ok()) return reconciled.status();
  auto impl = std::make_unique<Impl>(std::move(options), file_system, clock, alarms, probe,
                                     *std::move(catalog));
  impl->Start(*std::move(reconciled));
  return std::unique_ptr<Coordinator>(new Coordinator(std::move(impl)));
}

Coordinator::Coordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Coordinator::~Coordinator() = default;

void Coordinator::JoinWorld(const v1::JoinWorldRequest& request, Done<v1::JoinWorldResponse> done) {
  impl_->JoinWorld(request, std::move(done));
}
void Coordinator::PlanSave(const v1::PlanSaveRequest& request, Done<v1::PlanSaveResponse> done) {
  impl_->PlanSave(request, std::move(done));
}
void Coordinator::ReportStaged(const v1::ReportStagedRequest& request,
                               Done<v1::ReportStagedResponse> done) {
  impl_->ReportStaged(request, std::move(done));
}
void Coordinator::CommitSave(const v1::CommitSaveRequest& request,
                             Done<v1::CommitSaveResponse> done) {
  impl_->CommitSave(request, std::move(done));
}
void Coordinator::PlanLoad(const v1::PlanLoadRequest& request, Done<v1::PlanLoadResponse> done) {
  impl_->PlanLoad(request, std::move(done));
}
void Coordinator::FinishLoad(const v1::FinishLoadRequest& request,
                             Done<v1::FinishLoadResponse> done) {
  impl_->FinishLoad(request, std::move(done));
}
void Coordinator::ListCheckpoints(const v1::AuthorizedListCheckpoints& request,
                                  Done<v1::ListCheckpointsResponse> done) {
  impl_->ListCheckpoints(request, std::move(done));
}
void Coordinator::ShowCheckpoint(const v1::AuthorizedShowCheckpoint& request,
                                 Done<v1::ShowCheckpointResponse> done) {
  impl_->ShowCheckpoint(request, std::move(done));
}
void Coordinator::RemoveCheckpoints(const v1::AuthorizedRemoveCheckpoints& request,
                                    Done<v1::RemoveCheckpointsResponse> done) {
  impl_->RemoveCheckpoints(request, std::move(done));
}
void Coordinator::Drain() { impl_->Drain(); }
bool Coordinator::AwaitSavesFinished(absl::Duration limit) {
  return impl_->AwaitSavesFinished(limit);
}
void Coordinator::Stop() { impl_->Stop(); }

Coordinator::Impl::Impl(CoordinatorOptions options, FileSystem& file_system, const Clock& clock,
                        Alarms& alarms, CoordinatorProbe& probe, std::unique_ptr<Catalog> catalog)
    : options_(std::move(options)),
      file_system_(file_system),
      clock_(clock),
      alarms_(alarms),
      probe_(probe),
      catalog_(std::move(catalog)),
      writer_("ckptd-writer", 1, kQueueLimit),
      planner_("ckptd-planner", kPlannerThreads, kQueueLimit) {}

void Coordinator::Impl::Start(Reconciled reconciled) {
  {
    absl::MutexLock lock(&gate_->mutex);
    gate_->impl = this;
  }
  for (const std::string& warning : reconciled.warnings) probe_.Warning(warning);
  {
    Deferred deferred;
    absl::MutexLock lock(&mutex_);
    for (v1::JobRecord& record : reconciled.jobs) {
      Job& job = jobs_[record.job()];
      job.name = record.job();
      job.has_owner = record.has_owner();
      job.owner = record.owner();
      job.settled_epoch = record.settled_epoch();
      for (const v1::WorldRecord& world : record.worlds()) {
        job.worlds[world.epoch()] = MakeWorld(world);
        if (world.has_loaded_step()) job.loaded_step[world.epoch()] = world.loaded_step();
      }
      std::shared_ptr<const World> current =
          job.worlds.empty() ? nullptr : job.worlds.rbegin()->second;
      if (job.worlds.size() > 1) {
        job.settling = {.new_world = current, .nodes_were_asked = false};
      }
      job.table.Restore(record.last_epoch(), std::move(current));
    }
    for (v1::CheckpointRecord& record : reconciled.checkpoints) {
      jobs_[record.summary().job()].checkpoints[record.summary().step()] = std::move(record);
    }
    for (auto& [name, job] : jobs_) {
      PublishJobState(job);
      TrySettle(job, deferred);
    }
  }
  ScheduleCollection(absl::ZeroDuration());
}

absl::Status Coordinator::Impl::CheckServing() const {
  if (stopping_) return absl::UnavailableError("the coordinator is shutting down");
  if (draining_) {
    return absl::UnavailableError(
        "the coordinator is draining: it only finishes what is under way; try again when it is "
        "back");
  }
  return absl::OkStatus();
}

Job* Coordinator::Impl::FindJob(const std::string& name) {
  auto it = jobs_.find(name);
  return it == jobs_.end() ? nullptr : &it->second;
}

absl::Status Coordinator::Impl::CheckOwner(const Job& job, uint32_t user_id) {
  if (!job.has_owner || user_id == 0 || user_id == job.owner.user_id()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("job ", job.name, " belongs to user ",
                                                  job.owner.user_id(), ", not to user ", user_id));
}

absl::Time Coordinator::Impl::DeadlineIn(double timeout_seconds) const {
  const double longest = absl::ToDoubleSeconds(options_.longest_wait);
  // Not a number and negative ones are no time at all.
  const double seconds = timeout_seconds > 0 ? std::min(timeout_seconds, longest) : 0;
  return clock_.Now() + absl::Seconds(seconds);
}

void Coordinator::Impl::CancelAlarm(AlarmId& alarm) {
  // One that is firing just now finds nothing left to do.
  if (alarm != 0) (void)alarms_.Cancel(alarm);
  alarm = 0;
}

void Coordinator::Impl::PublishJobState(const Job& job) {
  const v1::CheckpointRecord* latest = LatestCheckpoint(job);
  probe_.JobState(job.name, latest == nullptr ? 0 : latest->summary().step(),
                  latest == nullptr
                      ? absl::UnixEpoch()
                      : absl::FromUnixMicros(latest->summary().committed_unix_microseconds()),
                  job.checkpoints.size());
}

std::string Coordinator::Impl::FolderOf(const v1::CheckpointRecord& record) const {
  return JobFolder(options_.stores.at(record.summary().store()), record.summary().job());
}

void Coordinator::Impl::Drain() {
  absl::MutexLock lock(&mutex_);
  draining_ = true;
}

bool Coordinator::Impl::AwaitSavesFinished(absl::Duration limit) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(
                                     +[](size_t* saves) { return *saves == 0; }, &saves_under_way_),
                                 limit);
}

void Coordinator::Impl::Stop() {
  {
    Deferred deferred;
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      stopping_ = true;
      const absl::Status status = absl::UnavailableError("the coordinator is shutting down");
      for (auto& [name, job] : jobs_) {
        std::vector<WorldTable::CallId> joins;
        for (const auto& [call, unused] : job.joins) joins.push_back(call);
        for (WorldTable::CallId call : joins) JoinFailed(job, call, status, deferred);
        for (auto& [attempt, state] : job.rounds) {
          CancelAlarm(state->alarm);
          if (state->committing) continue;  // answered when its commit is done
          for (auto& [node, done] : state->plan_calls) deferred.Answer(std::move(done), status);
          for (auto& [node, done] : state->commit_calls) deferred.Answer(std::move(done), status);
          state->plan_calls.clear();
          state->commit_calls.clear();
        }
        std::vector<LoadKey> loads;
        for (const auto& [key, unused] : job.loads) loads.push_back(key);
        for (LoadKey key : loads) FailLoad(job, key, status, deferred);
      }
    }
  }
  {
    absl::MutexLock lock(&gate_->mutex);
    gate_->impl = nullptr;
  }
  planner_.Stop();
  writer_.Stop();
  catalog_.reset();
}

}  // namespace ckptd
