// Gathering loads, and their ends. How one is planned is in load_plans.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/coordinator/coordinator_impl.h"
#include "daemon/coordinator/load_planner.h"
#include "daemon/coordinator/names.h"
#include "proto/rpc/status.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

bool SameQuestion(const v1::PlanLoadRequest& a, const v1::PlanLoadRequest& b) {
  return a.selector().SerializeAsString() == b.selector().SerializeAsString() &&
         a.options().SerializeAsString() == b.options().SerializeAsString();
}

absl::Status CheckRequest(const v1::PlanLoadRequest& request) {
  absl::Status status = ValidateJobName(request.job());
  if (status.ok()) status = ValidateNodeName(request.node());
  if (status.ok()) status = CheckWants(request);
  if (!status.ok()) return status;
  if (request.ranks().empty()) return absl::InvalidArgumentError("a load without ranks");
  if (request.selector().which_case() == v1::CheckpointSelector::WHICH_NOT_SET) {
    return absl::InvalidArgumentError("a load that names neither a step nor the latest");
  }
  return absl::OkStatus();
}

}  // namespace

void Coordinator::Impl::PlanLoad(const v1::PlanLoadRequest& request,
                                 Done<v1::PlanLoadResponse> done) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return done(status);
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  absl::Status status = CheckServing();
  if (!status.ok()) return deferred.Answer(std::move(done), status);
  Job* job = FindJob(request.job());
  if (job == nullptr) {
    return deferred.Answer(std::move(done),
                           absl::NotFoundError(absl::StrCat("there is no job ", request.job())));
  }
  if (status = CheckOwner(*job, request.user_id()); !status.ok()) {
    return deferred.Answer(std::move(done), status);
  }
  absl::StatusOr<LoadState*> load = FindOrStartLoad(*job, request);
  if (!load.ok()) return deferred.Answer(std::move(done), load.status());
  auto planned = (*load)->responses.find(request.node());
  if (planned != (*load)->responses.end()) {
    return deferred.Answer(std::move(done), absl::StatusOr<v1::PlanLoadResponse>(planned->second));
  }
  if ((*load)->planned) {
    return deferred.Answer(std::move(done), absl::FailedPreconditionError(absl::StrCat(
                                                "node ", request.node(), " has finished load ",
                                                request.load_number(), " of job ", job->name)));
  }
  LoadCall& call = (*load)->calls[request.node()];
  if (call.done != nullptr) {
    deferred.Answer(std::move(call.done), absl::AbortedError("the node asked again"));
  }
  call = {request, std::move(done)};
  TryPlanLoads(*job, deferred);
  TrySettle(*job, deferred);
}

// Also sets its deadline, and gives up what earlier loads of the same world kept.
absl::StatusOr<LoadState*> Coordinator::Impl::FindOrStartLoad(Job& job,
                                                              const v1::PlanLoadRequest& request) {
  // Those of processes that died and never said that they had finished.
  std::erase_if(job.loads, [now = clock_.Now()](const auto& it) {
    return it.second.planned && it.second.held_until <= now;
  });
  const bool is_new =
      request.epoch() == 0 || job.loads.count({request.epoch(), request.load_number()}) == 0;
  if (is_new && job.loads.size() >= kMaxLoadsPerJob) {
    return absl::ResourceExhaustedError(
        absl::StrCat(job.loads.size(), " loads of job ", job.name, " are under way"));
  }
  LoadKey key{request.epoch(), request.load_number()};
  std::shared_ptr<const World> world;
  if (request.epoch() == 0) {
    key.number = next_id_++;
    if (request.ranks_size() != 1) {
      return absl::InvalidArgumentError("a reader is a world of one rank");
    }
  } else {
    world = job.table.current();
    if (world == nullptr || request.epoch() != world->epoch) {
      return absl::FailedPreconditionError(absl::StrCat(
          "epoch ", request.epoch(), " of job ", job.name, " is not the current one, epoch ",
          job.current_epoch(), ": end this left-over run or join again"));
    }
    std::vector<uint32_t> ranks;
    for (const v1::RankWant& want : request.ranks()) ranks.push_back(want.rank());
    std::sort(ranks.begin(), ranks.end());
    auto own = world->ranks_of_node.find(request.node());
    if (own == world->ranks_of_node.end() || own->second != ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("node ", request.node(), " asks for ", RanksToString(ranks),
                       ", not for its ranks of epoch ", world->epoch));
    }
    std::erase_if(job.loads, [&](const auto& it) {
      return it.first.epoch == key.epoch && it.first.number < key.number && it.second.planned;
    });
  }
  auto [it, added] = job.loads.try_emplace(key);
  LoadState& load = it->second;
  if (!load.calls.empty() && !SameQuestion(load.calls.begin()->second.request, request)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "node ", request.node(),
        " asks for another checkpoint or with other options "
        "than node ",
        load.calls.begin()->first, " in load ", request.load_number(), " of job ", job.name));
  }
  load.world = std::move(world);
  load.reader_load_number = request.load_number();
  if (load.planned || load.planning) return &load;
  load.deadline = std::min(load.deadline, DeadlineIn(request.timeout_seconds()));
  CancelAlarm(load.alarm);
  load.alarm =
      SetAlarm(load.deadline, [name = job.name, key](Impl& impl) { impl.LoadTimedOut(name, key); });
  return &load;
}

void Coordinator::Impl::TryPlanLoads(Job& job, Deferred& deferred) {
  std::vector<LoadKey> ready;
  for (const auto& [key, load] : job.loads) {
    const bool complete = load.world == nullptr
                              ? !load.calls.empty()
                              : load.calls.size() == load.world->ranks_of_node.size();
    const bool settled = load.world == nullptr || job.IsSettled();
    if (complete && settled && !load.planning && !load.planned) ready.push_back(key);
  }
  for (LoadKey key : ready) {
    LoadState& load = job.loads.at(key);
    absl::StatusOr<uint64_t> step = ChooseStep(job, load.calls.begin()->second.request.selector());
    absl::Status status = step.status();
    if (status.ok()) {
      load.planning = true;
      load.step = *step;  // from here on it is not removed
      load.held_until = clock_.Now() + options_.longest_load;
      status = planner_.Submit(
          [this, name = job.name, key, step = *step] { RunLoadPlan(name, key, step); });
    }
    if (!status.ok()) FailLoad(job, key, status, deferred);
  }
}

absl::StatusOr<uint64_t> Coordinator::Impl::ChooseStep(
    const Job& job, const v1::CheckpointSelector& selector) const {
  if (selector.which_case() == v1::CheckpointSelector::kStep) {
    if (job.checkpoints.count(selector.step()) > 0) return selector.step();
    return absl::NotFoundError(absl::StrCat("there is no checkpoint of ",
                                            CheckpointName(job.name, selector.step()),
                                            "; the job has ", DescribeSteps(job)));
  }
  const v1::CheckpointRecord* latest = LatestCheckpoint(job);
  if (latest != nullptr) return latest->summary().step();
  return absl::NotFoundError(absl::StrCat("job ", job.name, " has no checkpoint yet"));
}

void Coordinator::Impl::LoadTimedOut(const std::string& name, LoadKey key) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  Job* job = FindJob(name);
  auto it = job->loads.find(key);
  if (it == job->loads.end() || it->second.planned) return;
  FailLoad(*job, key,
           absl::DeadlineExceededError(absl::StrCat("loading a checkpoint of job ", name,
                                                    ", epoch ", key.epoch, ": ",
                                                    DescribeLoadWaiting(*job, it->second))),
           deferred);
}

std::string Coordinator::Impl::DescribeLoadWaiting(const Job& job, const LoadState& load) const {
  std::string waiting;
  if (load.world != nullptr) {
    for (const auto& [node, ranks] : load.world->ranks_of_node) {
      if (load.calls.count(node) > 0) continue;
      absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", RanksToString(ranks), " (node ", node,
                      ")");
    }
  }
  if (!waiting.empty()) return absl::StrCat("phase plan: waiting for ", waiting);
  if (job.IsSettled()) return "phase plan: waiting for the catalog";
  for (const auto& [key, state] : job.rounds) {
    if (key.epoch >= job.current_epoch()) continue;
    absl::StrAppend(&waiting, waiting.empty() ? "" : "; ", state->round.Describe(), ", ",
                    state->round.DescribeWaiting());
  }
  return absl::StrCat("phase settle: waiting for the older run's saves: ", waiting);
}

void Coordinator::Impl::FailLoad(Job& job, LoadKey key, const absl::Status& status,
                                 Deferred& deferred) {
  auto it = job.loads.find(key);
  if (it == job.loads.end()) return;
  CancelAlarm(it->second.alarm);
  for (auto& [node, call] : it->second.calls) deferred.Answer(std::move(call.done), status);
  job.loads.erase(it);
}

bool Coordinator::Impl::IsBeingLoaded(const Job& job, uint64_t step) const {
  return std::any_of(job.loads.begin(), job.loads.end(), [&](const auto& it) {
    const LoadState& load = it.second;
    return (load.planning || load.planned) && load.step == step && load.held_until > clock_.Now();
  });
}

void Coordinator::Impl::FinishLoad(const v1::FinishLoadRequest& request,
                                   Done<v1::FinishLoadResponse> done) {
  Deferred deferred;
  absl::MutexLock lock(&mutex_);
  const absl::Status result = StatusFromWire(request.error_code(), request.error_message());
  deferred.Answer(std::move(done),
                  absl::StatusOr<v1::FinishLoadResponse>(v1::FinishLoadResponse()));
  Job* job = FindJob(request.job());
  if (job == nullptr) return;
  auto it = std::find_if(job->loads.begin(), job->loads.end(), [&](const auto& candidate) {
    return candidate.first.epoch == request.epoch() && candidate.second.planned &&
           candidate.second.reader_load_number == request.load_number() &&
           candidate.second.responses.count(request.node()) > 0;
  });
  if (it == job->loads.end()) return;  // resent, or planned by an earlier coordinator
  LoadState& load = it->second;
  if (result.ok() && request.epoch() != 0) job->loaded_step[request.epoch()] = load.step;
  probe_.LoadFinished(job->name, load.step, request.bytes_read(), request.seconds(), result);
  load.responses.erase(request.node());
  if (load.responses.empty()) job->loads.erase(it);
}

}  // namespace ckptd
