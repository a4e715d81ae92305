// The trainers' calls. Planning is in load_phases.cc, reading in load_reads.cc, the ends
// in load_ends.cc.
#include "daemon/node/loads.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/node/limits.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

constexpr size_t kReadQueueLimit = 1 << 14;

std::string DescribeSelector(const v1::CheckpointSelector& selector) {
  return selector.has_step() ? absl::StrCat("step ", selector.step()) : "the latest checkpoint";
}

}  // namespace

Loads::Loads(const NodeOptions& options, NodeEnvironment environment, Alarms& alarms,
             CallScope& scope, Worlds& worlds, Arena& arena, KeptImages& kept)
    : options_(options),
      environment_(environment),
      alarms_(alarms),
      scope_(scope),
      worlds_(worlds),
      arena_(arena),
      kept_(kept),
      executor_("ckptd-read", options.read_threads, kReadQueueLimit) {}

std::string Loads::Describe(const Load& load) const {
  return absl::StrCat("loading ", DescribeSelector(load.selector), " of job ", load.world.job,
                      " (epoch ", load.world.epoch, ", load ", std::get<2>(load.key), ") on node ",
                      options_.node_name);
}

std::string Loads::DescribeWait(const Load& load) {
  std::vector<std::string> late;
  const bool all_begun = load.plan_requested;
  for (const auto& [rank, part] : load.ranks) {
    const bool waited_for = all_begun ? !part.ended : !part.begun;
    if (waited_for) late.push_back(absl::StrCat(rank, " (process ", part.process_id, ")"));
  }
  const std::string ranks = absl::StrJoin(late, ", ");
  if (!all_begun) return absl::StrCat("waited for load() of rank ", ranks);
  if (load.plan == nullptr) return "waited for the coordinator's plan";
  if (load.ticket != nullptr) return "waited for arena memory";
  return load.all_read()
             ? absl::StrCat("waited for rank ", ranks, " to take its windows")
             : absl::StrCat("waited for storage, or for rank ", ranks, " to give windows back");
}

void Loads::BeginLoad(const SessionPtr& session, v1::BeginLoadRequest request,
                      Done<v1::BeginLoadResponse> done) {
  absl::Status status = CheckTimeout(request.timeout_seconds()).status();
  if (status.ok() && request.load_number() == 0) {
    status = absl::InvalidArgumentError("load numbers count from 1");
  }
  if (status.ok() && request.selector().which_case() == v1::CheckpointSelector::WHICH_NOT_SET) {
    status = absl::InvalidArgumentError("which checkpoint to load is not said");
  }
  if (!status.ok()) return std::move(done)(status);
  absl::StatusOr<CheckedLayoutPtr> layout = CheckLoadLayout(request.layout());
  if (!layout.ok()) return std::move(done)(layout.status());
  Later later;
  absl::MutexLock lock(&mutex_);
  // Under the lock: a rank whose process ends from here on is seen by SessionEnded.
  absl::StatusOr<WorldView> world = worlds_.Find(*session, request.job(), request.epoch());
  if (!world.ok()) return later.Answer(std::move(done), world.status());
  absl::StatusOr<LoadPtr> load = FindOrCreate(*world, *session, request);
  status = load.status();
  if (status.ok()) status = (*load)->error;
  if (status.ok()) status = AddRank(**load, *world, *session, *layout, request, done);
  if (!status.ok()) return later.Answer(std::move(done), status);
  ShortenDeadline(*load, request.timeout_seconds());
  const bool all_begun = std::all_of((*load)->ranks.begin(), (*load)->ranks.end(),
                                     [](const auto& entry) { return entry.second.begun; });
  if (all_begun) RequestPlan(*load, *session, later);
}

absl::StatusOr<Loads::LoadPtr> Loads::FindOrCreate(const WorldView& world, const Session& session,
                                                   const v1::BeginLoadRequest& request) {
  const LoadKey key(world.job, world.epoch, request.load_number(),
                    world.epoch == 0 ? session.id : 0);
  if (auto found = loads_.find(key); found != loads_.end()) return found->second;
  if (draining_) {
    return absl::UnavailableError(
        absl::StrCat("node ", options_.node_name, " is draining: it takes no new loads"));
  }
  size_t of_session = 0;
  for (const auto& [id, entry] : by_id_) {
    of_session += entry.first->ranks.at(entry.second).session == session.id ? 1 : 0;
  }
  if (of_session >= kMostLoadsPerSession) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this process has ", of_session, " loads under way, the limit: end one"));
  }
  if (absl::Status status = CheckWhole(world); !status.ok()) return status;
  auto load = std::make_shared<Load>();
  load->key = key;
  load->world = world;
  load->selector = request.selector();
  load->options = request.options();
  load->started = environment_.clock.Now();
  ShortenDeadline(load, request.timeout_seconds());
  for (const WorldMember& member : world.members) {
    load->ranks[member.rank].session = member.session;
    load->ranks[member.rank].process_id = member.process_id;
  }
  loads_[key] = load;
  return load;
}

// The shortest of the ranks' timeouts is the load's.
void Loads::ShortenDeadline(const LoadPtr& load, double timeout_seconds) {
  const absl::Time deadline = environment_.clock.Now() + absl::Seconds(timeout_seconds);
  if (deadline >= load->deadline) return;
  alarms_.Cancel(load->alarm);
  load->deadline = deadline;
  load->alarm = alarms_.At(deadline, [this, load] { DeadlinePassed(load); });
}

absl::Status Loads::AddRank(Load& load, const WorldView& world, const Session& session,
                            CheckedLayoutPtr layout, v1::BeginLoadRequest& request,
                            Done<v1::BeginLoadResponse>& done) {
  if (load.selector.SerializeAsString() != request.selector().SerializeAsString() ||
      load.options.SerializeAsString() != request.options().SerializeAsString()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", world.rank, " loads ", DescribeSelector(request.selector()),
                     ", another rank ", DescribeSelector(load.selector),
                     " (or with other options): all ranks must call load() alike"));
  }
  auto found = load.ranks.find(world.rank);
  if (found == load.ranks.end() || found->second.begun) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", world.rank, " has begun load number ", request.load_number(), " already"));
  }
  RankLoad& rank = found->second;
  rank.session = session.id;
  rank.process_id = session.process_id;
  rank.begun = true;
  rank.layout = std::move(layout);
  rank.wish = std::move(*request.mutable_layout());
  rank.begin_done = std::move(done);
  rank.load_id = next_load_id_++;
  by_id_[rank.load_id] = {loads_.at(load.key), world.rank};
  return absl::OkStatus();
}

absl::StatusOr<std::pair<Loads::LoadPtr, Loads::RankLoad*>> Loads::FindFor(const Session& session,
                                                                           uint64_t load_id) {
  auto found = by_id_.find(load_id);
  if (found != by_id_.end()) {
    const auto& [load, rank] = found->second;
    RankLoad& part = load->ranks.at(rank);
    if (part.session == session.id) return std::pair(load, &part);
  }
  return absl::NotFoundError(
      absl::StrCat("this session has no load ", load_id,
                   ": it has ended, or the node daemon was restarted; load again"));
}

void Loads::NextWindows(const SessionPtr& session, const v1::NextWindowsRequest& request,
                        Done<v1::NextWindowsResponse> done) {
  const double seconds = request.timeout_seconds();
  if (!(seconds >= 0) || seconds > kLongestTimeoutSeconds) {
    return std::move(done)(absl::InvalidArgumentError("timeout_seconds is out of range"));
  }
  Later later;
  absl::MutexLock lock(&mutex_);
  absl::StatusOr<std::pair<LoadPtr, RankLoad*>> found = FindFor(*session, request.load_id());
  if (!found.ok()) return later.Answer(std::move(done), found.status());
  const auto& [load, rank] = *found;
  for (uint64_t id : request.released_window_ids()) {
    auto held = rank->held.find(id);
    if (held == rank->held.end()) {
      return later.Answer(std::move(done), absl::InvalidArgumentError(absl::StrCat(
                                               "window ", id, " is not held by this rank")));
    }
    GiveBack(*load, held->second);
    rank->held.erase(held);
  }
  Pump(load, later);
  if (rank->next_done) {
    return later.Answer(std::move(done), absl::FailedPreconditionError(
                                             "another NextWindows of this load is waiting"));
  }
  rank->next_done = std::move(done);
  AnswerNext(*load, *rank, /*timed_out=*/seconds == 0, later);
  if (!rank->next_done) return;
  rank->next_alarm =
      alarms_.At(environment_.clock.Now() + absl::Seconds(seconds),
                 [this, load = load, id = request.load_id()] {
                   Later after;
                   absl::MutexLock alarm_lock(&mutex_);
                   auto still = by_id_.find(id);
                   if (still == by_id_.end()) return;
                   AnswerNext(*load, load->ranks.at(still->second.second), true, after);
                 });
}

void Loads::AnswerNext(Load& load, RankLoad& rank, bool timed_out, Later& later) {
  if (!rank.next_done) return;
  const bool done = load.all_read() && rank.ready.empty();
  if (load.error.ok() && rank.ready.empty() && !done && !timed_out) return;
  alarms_.Cancel(rank.next_alarm);
  auto answer = std::exchange(rank.next_done, nullptr);
  if (!load.error.ok()) return later.Answer(std::move(answer), load.error);
  v1::NextWindowsResponse response;
  while (!rank.ready.empty() && response.windows_size() < kMostWindowsPerAnswer) {
    auto& [window, read] = rank.ready.front();
    rank.held[window.window_id()] = read;
    *response.add_windows() = std::move(window);
    rank.ready.pop_front();
  }
  response.set_done(load.all_read() && rank.ready.empty());
  later.Answer(std::move(answer), std::move(response));
}

void Loads::AnswerAllNext(Load& load, Later& later) {
  for (auto& [rank, part] : load.ranks) AnswerNext(load, part, /*timed_out=*/false, later);
}

}  // namespace ckptd
