// What the coordinator holds in memory of one job, and the calls that wait for
// something of it. Plain data: the coordinator's lock guards all of it.
#ifndef CKPTD_DAEMON_COORDINATOR_JOB_STATE_H_
#define CKPTD_DAEMON_COORDINATOR_JOB_STATE_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "ckptd/v1/catalog.pb.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/coordinator/save_round.h"
#include "daemon/coordinator/world.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/done.h"

namespace ckptd {

inline constexpr size_t kMaxRoundsPerJob = 64;
inline constexpr size_t kMaxLoadsPerJob = 1024;
inline constexpr size_t kRememberedFailures = 256;

struct JoinCall {
  v1::JoinWorldRequest request;
  Done<v1::JoinWorldResponse> done;
  AlarmId alarm = 0;
  absl::Time since;
};

struct RoundState {
  explicit RoundState(SaveRound value) : round(std::move(value)) {}

  SaveRound round;
  bool overwrite = false;
  bool planning = false;    // on its thread
  bool committing = false;  // on its thread: can't fail any more by a deadline
  // The calls that wait, by node.
  std::map<std::string, Done<v1::PlanSaveResponse>> plan_calls;
  std::map<std::string, Done<v1::CommitSaveResponse>> commit_calls;
  absl::Time plan_deadline = absl::InfiniteFuture();
  absl::Time save_deadline = absl::InfiniteFuture();
  AlarmId alarm = 0;  // for the earlier of the two; 0: none

  // No call has changed it yet.
  bool IsUntouched() const {
    return plan_calls.empty() && commit_calls.empty() && !planning && round.plan() == nullptr &&
           round.StagedNodes().empty();
  }
};

struct LoadCall {
  v1::PlanLoadRequest request;
  Done<v1::PlanLoadResponse> done;
};

// A load of a world (epoch, load number), or of one reader (0, a number of ours).
struct LoadKey {
  uint64_t epoch = 0;
  uint64_t number = 0;
  friend auto operator<=>(const LoadKey&, const LoadKey&) = default;
};

struct LoadState {
  std::shared_ptr<const World> world;     // null: a reader
  std::map<std::string, LoadCall> calls;  // by node, waiting
  absl::Time deadline = absl::InfiniteFuture();
  AlarmId alarm = 0;
  bool planning = false;
  // Once planned: kept so that a resent call gets the same, until the node has finished.
  bool planned = false;
  uint64_t step = 0;
  uint64_t reader_load_number = 0;
  absl::Time held_until;
  std::map<std::string, v1::PlanLoadResponse> responses;
};

struct Settling {
  // The world that waits; null: nothing to settle.
  std::shared_ptr<const World> new_world;
  // Was every node of new_world asked what it holds? Not after a restart.
  bool nodes_were_asked = true;
  bool grace_over = false;
  AlarmId grace_alarm = 0;
  bool recording = false;  // the outcome is decided and being written
};

struct Job {
  std::string name;
  v1::Owner owner;
  bool has_owner = false;
  uint64_t settled_epoch = 0;

  WorldTable table;
  // By epoch: the current one, and older ones that are not settled.
  std::map<uint64_t, std::shared_ptr<const World>> worlds;
  std::map<uint64_t, uint64_t> loaded_step;  // by epoch of those
  std::map<WorldTable::CallId, JoinCall> joins;
  // The current world is in the catalog; else those wait for that.
  bool world_recorded = true;
  bool recording_world = false;
  std::vector<JoinCall> waiting_for_record;

  Settling settling;
  std::map<AttemptKey, std::unique_ptr<RoundState>> rounds;
  std::deque<std::pair<AttemptKey, absl::Status>> failures;  // the last ones

  // The plan that was last saved by, and in which epoch.
  std::shared_ptr<const PlannedSave> plan;
  uint64_t plan_epoch = 0;

  std::map<LoadKey, LoadState> loads;
  std::map<uint64_t, v1::CheckpointRecord> checkpoints;  // by step

  uint64_t current_epoch() const { return table.current() == nullptr ? 0 : table.current()->epoch; }
  bool IsSettled() const { return settling.new_world == nullptr; }
};

v1::JobRecord MakeJobRecord(const Job& job);
// Of the newest attempt. Null where there is none.
const v1::CheckpointRecord* LatestCheckpoint(const Job& job);
// "steps 10, 20, 30", or "no checkpoint".
std::string DescribeSteps(const Job& job);
// The data files that checkpoints of this job name, other than `record` itself (which
// is told by its attempt).
std::set<std::string> FilesNamedByOthers(const Job& job, const v1::CheckpointRecord& record);
// To a node of the current world.
v1::JoinWorldResponse MakeJoinResponse(const Job& job, const std::string& node);
// To a reader.
v1::JoinWorldResponse MakeReaderResponse(const Job& job);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_JOB_STATE_H_
