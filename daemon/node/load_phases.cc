// Planning; see loads.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/node/extent_allocator.h"
#include "daemon/node/loads.h"
#include "storage/format/text.h"

namespace ckptd {
namespace {

bool IsSafeRelativePath(absl::string_view path) {
  return !path.empty() && path.front() != '/' && path.find("..") == absl::string_view::npos &&
         path.find('\0') == absl::string_view::npos;
}

}  // namespace

void Loads::RequestPlan(const LoadPtr& load, const Session& session, Later& later) {
  load->plan_requested = true;
  v1::PlanLoadRequest request;
  request.set_job(load->world.job);
  request.set_epoch(load->world.epoch);
  request.set_load_number(std::get<2>(load->key));
  request.set_node(options_.node_name);
  *request.mutable_selector() = load->selector;
  *request.mutable_options() = load->options;
  request.set_user_id(session.user_id);
  request.set_timeout_seconds(
      std::max(0.001, absl::ToDoubleSeconds(load->deadline - environment_.clock.Now())));
  for (auto& [rank, part] : load->ranks) {
    v1::RankWant* want = request.add_ranks();
    want->set_rank(rank);
    *want->mutable_layout() = std::move(part.wish);
  }
  later.Add([this, load, request = std::move(request)]() mutable {
    environment_.coordinator.PlanLoad(
        std::move(request),
        scope_.Wrap([this, load](absl::StatusOr<v1::PlanLoadResponse> response) {
          Planned(load, std::move(response));
        }));
  });
}

void Loads::Planned(const LoadPtr& load, absl::StatusOr<v1::PlanLoadResponse> response) {
  absl::Status status = response.status();
  std::shared_ptr<const v1::PlanLoadResponse> plan;
  std::vector<PlannedRead> reads;
  if (status.ok()) {
    plan = std::make_shared<const v1::PlanLoadResponse>(*std::move(response));
    status = CheckPlaces(*plan);
  }
  if (status.ok()) {
    std::map<uint32_t, CheckedLayoutPtr> layouts;
    for (const auto& [rank, part] : load->ranks) layouts[rank] = part.layout;
    absl::StatusOr<std::vector<PlannedRead>> planned =
        PlanReads(*plan, layouts, options_.load_window_bytes);
    status = planned.status();
    if (planned.ok()) reads = *std::move(planned);
  }
  Later later;
  absl::MutexLock lock(&mutex_);
  if (!load->error.ok() || load->reported) return;
  if (!status.ok()) return Fail(load, status, later);
  load->plan = plan;
  load->planned = environment_.clock.Now();
  environment_.probe.RestorePlanned(absl::ToDoubleSeconds(load->planned - load->started));
  load->reads = std::move(reads);
  load->reader = std::make_shared<LoadReader>(
      environment_.file_system, environment_.probe,
      absl::StrCat(options_.stores.at(plan->store()), "/", load->world.job), plan,
      options_.direct_io);
  CountBytes(*load);
  QueueReads(*load);
  // Else they are answered when there is memory for the load.
  if (!load->arena_reads.empty() || load->all_read()) AnswerBegins(*load, later);
  Pump(load, later);
}

absl::Status Loads::CheckPlaces(const v1::PlanLoadResponse& plan) const {
  if (!options_.stores.contains(plan.store())) {
    return absl::NotFoundError(absl::StrCat("node ", options_.node_name, " has no store \"",
                                            plan.store(), "\", where the checkpoint lies"));
  }
  for (const v1::DataFile& file : plan.files()) {
    if (!IsSafeRelativePath(file.path())) {
      return absl::InternalError(absl::StrCat("a data file named ", Printable(file.path())));
    }
  }
  return absl::OkStatus();
}

void Loads::CountBytes(Load& load) {
  for (const PlannedRead& read : load.reads) {
    for (const ReadPart& part : read.parts) {
      uint32_t last = UINT32_MAX;
      for (const WindowTarget& target : part.targets) {
        if (target.rank != last) load.ranks.at(target.rank).bytes += part.length;
        last = target.rank;
      }
    }
  }
}

void Loads::RequestSlots(const LoadPtr& load, Later& later) {
  const size_t tasks = load->storage_reads.size() + load->headers.size();
  uint64_t slot_bytes = std::min<uint64_t>(options_.load_window_bytes, uint64_t{1} << 20);
  for (const PlannedRead& read : load->reads) slot_bytes = std::max(slot_bytes, read.length);
  const size_t slots = std::min<size_t>(options_.load_windows, tasks);
  load->ticket = arena_.Open(load->world.job, Describe(*load));
  load->ticket->Expect(slots * slot_bytes);
  std::vector<ExtentAsk> asks(slots, {.bytes = slot_bytes, .contiguous = true});
  later.Add([this, load, ticket = load->ticket, asks = std::move(asks),
             deadline = load->deadline]() mutable {
    auto leased = [this, load](absl::StatusOr<std::vector<ArenaLeasePtr>> leases) {
      Later after;
      absl::MutexLock lock(&mutex_);
      load->ticket.reset();
      if (!load->error.ok() || load->reported) return;
      if (!leases.ok()) return Fail(load, leases.status(), after);
      load->slots = *std::move(leases);
      for (size_t i = 0; i < load->slots.size(); ++i) load->free_slots.insert(i);
      AnswerBegins(*load, after);
      Pump(load, after);
    };
    arena_.Acquire(std::move(ticket), std::move(asks), deadline, std::move(leased));
  });
}

void Loads::AnswerBegins(Load& load, Later& later) {
  for (auto& [rank, part] : load.ranks) {
    if (!part.begin_done) continue;
    v1::BeginLoadResponse response;
    response.set_load_id(part.load_id);
    response.set_step(load.plan->step());
    response.set_saved_world_size(load.plan->saved_world_size());
    response.set_bytes(part.bytes);
    for (const v1::RankLoad& planned : load.plan->ranks()) {
      if (planned.rank() != rank) continue;
      *response.mutable_casts() = planned.casts();
      *response.mutable_missing() = planned.missing();
      *response.mutable_small() = planned.small();
    }
    later.Answer(std::exchange(part.begin_done, nullptr), std::move(response));
  }
}

}  // namespace ckptd
