#include "tests/coordinator/fake_cluster.h"

#include <filesystem>

#include "daemon/coordinator/save_round.h"
#include "storage/file_system/posix_file_system.h"
#include "storage/format/checkpoint_path.h"
#include "storage/format/checksum.h"
#include "storage/layout/data_type.h"
#include "tests/catch.h"

namespace ckptd {

FakeCluster::FakeCluster() : posix(MakePosixFileSystem()) {
  files = std::make_unique<FaultInjectingFileSystem>(*posix);
  std::filesystem::create_directory(store());
  auto made = MakeCoordinator();
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  coordinator_ = *std::move(made);
}

FakeCluster::~FakeCluster() { coordinator_.reset(); }

absl::StatusOr<std::unique_ptr<Coordinator>> FakeCluster::MakeCoordinator() {
  CoordinatorOptions options;
  options.catalog_path = folder_ / "catalog";
  options.stores = {{"default", store()}};
  return Coordinator::Create(options, *files, clock, alarms, probe);
}

void FakeCluster::RestartCoordinator() {
  coordinator_.reset();
  auto made = MakeCoordinator();
  INFO(made.status().ToString());
  REQUIRE(made.ok());
  coordinator_ = *std::move(made);
}

void FakeCluster::LosePower(uint64_t seed) {
  coordinator_.reset();
  REQUIRE(files->PowerOff(seed).ok());
  files = std::make_unique<FaultInjectingFileSystem>(*posix);
  RestartCoordinator();
}

void FakeCluster::LoseCatalog() {
  coordinator_.reset();
  std::filesystem::remove_all(folder_ / "catalog");
  RestartCoordinator();
}

void FakeCluster::LetCollectionRun() {
  // Files are as old as the machine's clock says, so the test's clock must pass it.
  clock.Set(SystemClock().Now() + absl::Hours(48));
  alarms.Advance(absl::Minutes(20));
  RestartCoordinator();  // waits for the collections
  clock.Set(clock.Now() + absl::Hours(48));
  alarms.Advance(absl::Minutes(20));
  RestartCoordinator();
}

v1::CheckpointSummary FakeCluster::Summary(uint64_t step) {
  Answer<v1::ListCheckpointsResponse> answer;
  coordinator_->ListCheckpoints({}, answer.done());
  const auto listed = answer.Wait();
  REQUIRE(listed.ok());
  for (const auto& checkpoint : listed->checkpoints()) {
    if (checkpoint.step() == step) return checkpoint;
  }
  FAIL("step " << step << " is not listed");
  return {};
}

void FakeCluster::CheckThatAllAreWhole() {
  for (uint64_t step : Steps()) {
    v1::AuthorizedShowCheckpoint request;
    request.mutable_request()->set_job("gpt");
    request.mutable_request()->mutable_selector()->set_step(step);
    Answer<v1::ShowCheckpointResponse> answer;
    coordinator_->ShowCheckpoint(request, answer.done());
    const auto shown = answer.Wait();
    INFO(step << ": " << shown.status().ToString());
    REQUIRE(shown.ok());
    v1::Manifest manifest;
    REQUIRE(manifest.ParseFromString(shown->manifest()));
    CHECK(manifest.files_size() > 0);
    CHECK(KeyOf(manifest.attempt()) == KeyOf(shown->summary().attempt()));
    for (const v1::DataFile& file : manifest.files()) {
      const std::string path = shown->job_folder() + "/" + file.path();
      REQUIRE(Exists(path));
      CHECK(std::filesystem::file_size(path) == file.size_bytes());
    }
  }
}

bool FakeCluster::Exists(const std::string& path) const { return std::filesystem::exists(path); }

std::vector<uint64_t> FakeCluster::Steps() {
  Answer<v1::ListCheckpointsResponse> answer;
  coordinator_->ListCheckpoints({}, answer.done());
  std::vector<uint64_t> steps;
  const auto listed = answer.Wait();
  REQUIRE(listed.ok());
  for (const auto& checkpoint : listed->checkpoints()) steps.push_back(checkpoint.step());
  return steps;
}

Answer<v1::RemoveCheckpointsResponse> FakeCluster::Remove(uint64_t step, uint32_t user_id) {
  v1::AuthorizedRemoveCheckpoints request;
  request.set_user_id(user_id);
  request.mutable_request()->set_job("gpt");
  request.mutable_request()->set_step(step);
  Answer<v1::RemoveCheckpointsResponse> answer;
  coordinator_->RemoveCheckpoints(request, answer.done());
  return answer;
}

v1::Attempt FakeNode::attempt() const {
  v1::Attempt attempt;
  attempt.set_epoch(epoch);
  attempt.set_save_number(save_number);
  return attempt;
}

Answer<v1::JoinWorldResponse> FakeNode::Join(uint32_t world_size, const std::string& token) {
  v1::JoinWorldRequest request;
  request.set_job("gpt");
  request.set_world_size(world_size);
  request.set_run_token(token);
  request.set_node(name_);
  request.mutable_owner()->set_user_id(user_id);
  for (const auto& [rank, layout] : layouts) {
    v1::Member* member = request.add_members();
    member->set_rank(rank);
    member->set_process_nonce(nonce + std::to_string(rank));
  }
  request.mutable_unfinished()->Add(unfinished.begin(), unfinished.end());
  request.set_newest_epoch(newest_epoch);
  request.set_timeout_seconds(timeout_seconds);
  Answer<v1::JoinWorldResponse> answer;
  cluster_.coordinator().JoinWorld(request, answer.done());
  return answer;
}

Answer<v1::PlanSaveResponse> FakeNode::Plan(uint64_t step) {
  v1::PlanSaveRequest request;
  request.set_job("gpt");
  *request.mutable_attempt() = attempt();
  request.set_step(step);
  request.set_node(name_);
  for (const auto& [rank, layout] : layouts) {
    v1::RankLayout* given = request.add_ranks();
    given->set_rank(rank);
    given->set_layout(layout.SerializeAsString());
    given->set_fingerprint(Sha256(given->layout()));
  }
  request.set_overwrite(overwrite);
  request.set_timeout_seconds(timeout_seconds);
  Answer<v1::PlanSaveResponse> answer;
  cluster_.coordinator().PlanSave(request, answer.done());
  return answer;
}

Answer<v1::ReportStagedResponse> FakeNode::Stage(uint64_t step) {
  v1::ReportStagedRequest request;
  request.set_job("gpt");
  *request.mutable_attempt() = attempt();
  request.set_step(step);
  request.set_node(name_);
  request.set_plan_id(plan_.plan_id());
  for (const auto& [rank, layout] : layouts) {
    v1::RankFingerprint* given = request.add_ranks();
    given->set_rank(rank);
    given->set_fingerprint(Sha256(layout.SerializeAsString()));
  }
  request.set_timeout_seconds(timeout_seconds);
  Answer<v1::ReportStagedResponse> answer;
  cluster_.coordinator().ReportStaged(request, answer.done());
  return answer;
}

v1::CommitSaveRequest FakeNode::MakeReport(uint64_t step) {
  v1::CommitSaveRequest report;
  report.set_job("gpt");
  *report.mutable_attempt() = attempt();
  report.set_step(step);
  report.set_node(name_);
  report.set_plan_id(plan_.plan_id());
  report.set_overwrite(overwrite);
  report.set_timeout_seconds(timeout_seconds);
  uint64_t end = kIoAlignmentBytes;
  auto place = [&end](v1::Piece* piece, uint64_t bytes) {
    piece->set_file_offset(end);
    piece->set_size_bytes(bytes);
    for (uint64_t at = 0; at < bytes; at += kChunkBytes) piece->add_chunk_crc32c(0);
    end += bytes;
  };
  for (const v1::RankPlan& rank : plan_.ranks()) {
    for (const v1::PlannedPiece& planned : rank.pieces()) {
      v1::WrittenPiece* written = report.add_pieces();
      written->set_rank(rank.rank());
      written->set_shard(planned.shard());
      *written->mutable_piece()->mutable_offsets() = planned.offsets();
      *written->mutable_piece()->mutable_lengths() = planned.lengths();
      uint64_t bytes = 4;  // F32
      for (uint64_t length : planned.lengths()) bytes *= length;
      place(written->mutable_piece(), bytes);
    }
  }
  for (const auto& [rank, layout] : layouts) {
    v1::RankLayout* given = report.add_ranks();
    given->set_rank(rank);
    given->set_fingerprint(Sha256(layout.SerializeAsString()));
    for (const std::string& name : layout.values()) {
      auto own = value_of_rank.find(name + "/" + std::to_string(rank));
      const std::string content = own == value_of_rank.end() ? "same" : own->second;
      v1::WrittenSmall* small = report.add_small();
      small->add_ranks(rank);
      small->set_name(name);
      small->set_is_value(true);
      small->set_sha256(Sha256(content));
      small->mutable_piece()->add_offsets(0);
      small->mutable_piece()->add_lengths(content.size());
      place(small->mutable_piece(), content.size());
    }
  }
  const std::string folder = StepFolder(step);
  v1::DataFile* file = report.add_files();
  file->set_path(folder + "/" + DataFileName(epoch, save_number, name_, 0));
  file->set_size_bytes(end);
  file->set_header_bytes(kIoAlignmentBytes);
  std::filesystem::create_directories(cluster_.store() + "/gpt/" + folder);
  WriteAll(cluster_.store() + "/gpt/" + file->path(), std::string(end, '\0'));
  return report;
}

Answer<v1::CommitSaveResponse> FakeNode::Send(const v1::CommitSaveRequest& report) {
  Answer<v1::CommitSaveResponse> answer;
  cluster_.coordinator().CommitSave(report, answer.done());
  return answer;
}

Answer<v1::CommitSaveResponse> FakeNode::Commit(uint64_t step) { return Send(MakeReport(step)); }

Answer<v1::PlanLoadResponse> FakeNode::Load(std::optional<uint64_t> step,
                                            const v1::LoadOptions& options) {
  v1::PlanLoadRequest request;
  request.set_job("gpt");
  request.set_epoch(epoch);
  request.set_load_number(load_number);
  request.set_node(name_);
  if (step.has_value()) {
    request.mutable_selector()->set_step(*step);
  } else {
    request.mutable_selector()->set_latest(true);
  }
  *request.mutable_options() = options;
  for (const auto& [rank, layout] : layouts) {
    v1::RankWant* want = request.add_ranks();
    want->set_rank(rank);
    *want->mutable_layout() = layout;
  }
  request.set_user_id(user_id);
  request.set_timeout_seconds(timeout_seconds);
  Answer<v1::PlanLoadResponse> answer;
  cluster_.coordinator().PlanLoad(request, answer.done());
  return answer;
}

void FakeNode::Finish() {
  v1::FinishLoadRequest request;
  request.set_job("gpt");
  request.set_epoch(epoch);
  request.set_load_number(load_number);
  request.set_node(name_);
  Answer<v1::FinishLoadResponse> answer;
  cluster_.coordinator().FinishLoad(request, answer.done());
  CHECK(answer.status().ok());
}

}  // namespace ckptd
