#include "daemon/coordinator/job_state.h"

#include "absl/strings/str_cat.h"

namespace ckptd {

v1::JobRecord MakeJobRecord(const Job& job) {
  v1::JobRecord record;
  record.set_job(job.name);
  if (job.has_owner) *record.mutable_owner() = job.owner;
  record.set_last_epoch(job.table.last_epoch());
  record.set_settled_epoch(job.settled_epoch);
  for (const auto& [epoch, world] : job.worlds) {
    v1::WorldRecord* recorded = record.add_worlds();
    recorded->set_epoch(epoch);
    recorded->set_run_token(world->run_token);
    recorded->set_store(world->store);
    recorded->mutable_members()->Assign(world->members.begin(), world->members.end());
    auto loaded = job.loaded_step.find(epoch);
    if (loaded != job.loaded_step.end()) recorded->set_loaded_step(loaded->second);
  }
  return record;
}

const v1::CheckpointRecord* LatestCheckpoint(const Job& job) {
  const v1::CheckpointRecord* latest = nullptr;
  for (const auto& [step, record] : job.checkpoints) {
    if (latest == nullptr ||
        KeyOf(record.summary().attempt()) > KeyOf(latest->summary().attempt())) {
      latest = &record;
    }
  }
  return latest;
}

std::string DescribeSteps(const Job& job) {
  constexpr size_t kMost = 100;
  if (job.checkpoints.empty()) return "no checkpoint";
  std::string text = job.checkpoints.size() == 1 ? "step" : "steps";
  size_t listed = 0;
  for (const auto& [step, record] : job.checkpoints) {
    if (listed == kMost) {
      absl::StrAppend(&text, " and ", job.checkpoints.size() - kMost, " more");
      break;
    }
    absl::StrAppend(&text, listed++ == 0 ? " " : ", ", step);
  }
  return text;
}

std::set<std::string> FilesNamedByOthers(const Job& job, const v1::CheckpointRecord& record) {
  std::set<std::string> files;
  for (const auto& [step, other] : job.checkpoints) {
    if (KeyOf(other.summary().attempt()) == KeyOf(record.summary().attempt())) continue;
    for (const v1::DataFile& file : other.files()) files.insert(file.path());
  }
  return files;
}

v1::JoinWorldResponse MakeJoinResponse(const Job& job, const std::string& node) {
  v1::JoinWorldResponse response = MakeReaderResponse(job);
  const World& world = *job.table.current();
  response.set_epoch(world.epoch);
  const std::vector<uint32_t>& ranks = world.ranks_of_node.at(node);
  response.mutable_node_ranks()->Add(ranks.begin(), ranks.end());
  return response;
}

v1::JoinWorldResponse MakeReaderResponse(const Job& job) {
  v1::JoinWorldResponse response;
  for (const auto& [step, record] : job.checkpoints) response.add_committed_steps(step);
  return response;
}

}  // namespace ckptd
