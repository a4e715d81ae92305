#include "tests/node/node_fixture.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ckptd/v1/handle.pb.h"
#include "daemon/node/sha256.h"
#include "proto/rpc/handle_socket.h"
#include "proto/rpc/wire.h"
#include "storage/file_system/posix_file_system.h"
#include "storage/format/checksum.h"
#include "tests/catch.h"

namespace ckptd {

void FakeCoordinator::JoinWorld(v1::JoinWorldRequest request, Done<v1::JoinWorldResponse> done) {
  v1::JoinWorldResponse response;
  {
    absl::MutexLock lock(&mutex_);
    const uint32_t owner =
        owners_.try_emplace(request.job(), request.owner().user_id()).first->second;
    if (owner != request.owner().user_id()) {
      return std::move(done)(absl::PermissionDeniedError("the job is another user's"));
    }
    response.set_epoch(request.reader() ? 0 : epoch_);
    newest_epoch_ = request.newest_epoch();
  }
  // All are of this node.
  for (uint32_t rank = 0; rank < request.world_size() && !request.reader(); ++rank) {
    response.add_node_ranks(rank);
  }
  std::move(done)(response);
}

void FakeCoordinator::PlanSave(v1::PlanSaveRequest request, Done<v1::PlanSaveResponse> done) {
  v1::PlanSaveResponse response;
  std::set<std::string> planned;
  {
    absl::MutexLock lock(&mutex_);
    response.set_plan_id(absl::StrCat("plan", ++plans_));
    for (const v1::RankLayout& rank : request.ranks()) {
      v1::Layout& layout = layouts_[{request.job(), rank.rank()}];
      layout.ParseFromString(rank.layout());
      v1::RankPlan* plan = response.add_ranks();
      plan->set_rank(rank.rank());
      for (int i = 0; i < layout.shards_size(); ++i) {
        if (!planned.insert(layout.shards(i).name()).second) continue;
        v1::PlannedPiece* piece = plan->add_pieces();
        piece->set_shard(i);
        *piece->mutable_offsets() = layout.shards(i).offsets();
        *piece->mutable_lengths() = layout.shards(i).lengths();
      }
    }
  }
  std::move(done)(response);
}

void FakeCoordinator::ReportStaged(v1::ReportStagedRequest, Done<v1::ReportStagedResponse> done) {
  {
    absl::MutexLock lock(&mutex_);
    if (holds_staged_) return held_staged_.push_back(std::move(done));
  }
  std::move(done)(v1::ReportStagedResponse());
}

void FakeCoordinator::CommitSave(v1::CommitSaveRequest request, Done<v1::CommitSaveResponse> done) {
  {
    absl::MutexLock lock(&mutex_);
    commits_.push_back(std::move(request));
    if (holds_commits_) return held_commits_.push_back(std::move(done));
  }
  std::move(done)(v1::CommitSaveResponse());
}

void FakeCoordinator::PlanLoad(v1::PlanLoadRequest request, Done<v1::PlanLoadResponse> done) {
  v1::PlanLoadResponse response;
  {
    absl::MutexLock lock(&mutex_);
    if (holds_plans_) return held_plans_.push_back(std::move(done));
    const auto last = std::find_if(commits_.rbegin(), commits_.rend(), [&](const auto& commit) {
      return commit.job() == request.job() && commit.error_code() == 0;
    });
    const v1::CommitSaveRequest& saved = *last;
    response.set_step(saved.step());
    response.set_store("main");
    response.set_chunk_bytes(kChunkBytes);
    *response.mutable_files() = saved.files();
    for (const v1::WrittenPiece& written : saved.pieces()) {
      const v1::Shard& shard = layouts_[{request.job(), written.rank()}].shards(written.shard());
      v1::WantedPiece wanted;
      wanted.set_name(shard.name());
      wanted.set_data_type(shard.data_type());
      *wanted.mutable_piece() = written.piece();
      for (const v1::RankWant& rank : request.ranks()) {
        for (int i = 0; i < rank.layout().shards_size(); ++i) {
          if (rank.layout().shards(i).name() != shard.name()) continue;
          v1::PieceTarget* target = wanted.add_targets();
          target->set_rank(rank.rank());
          target->set_shard(i);
        }
      }
      if (wanted.targets_size() > 0) *response.add_pieces() = wanted;
    }
    for (const v1::RankWant& rank : request.ranks()) {
      v1::RankLoad* load = response.add_ranks();
      load->set_rank(rank.rank());
      for (int i = 0; i < rank.layout().values_size(); ++i) {
        for (const v1::WrittenSmall& small : saved.small()) {
          const bool mine = std::count(small.ranks().begin(), small.ranks().end(), rank.rank()) > 0;
          if (small.name() != rank.layout().values(i) || !mine) continue;
          v1::WantedPiece* wanted = response.add_pieces();
          wanted->set_name(small.name());
          wanted->set_data_type(small.data_type());
          *wanted->mutable_piece() = small.piece();
          v1::PieceTarget* target = wanted->add_targets();
          target->set_rank(rank.rank());
          target->set_small(load->small_size());
          v1::SmallDelivery* delivery = load->add_small();
          delivery->set_value(i);
          delivery->set_size_bytes(small.piece().size_bytes());
        }
      }
    }
  }
  std::move(done)(response);
}

void FakeCoordinator::FinishLoad(v1::FinishLoadRequest, Done<v1::FinishLoadResponse> done) {
  std::move(done)(v1::FinishLoadResponse());
}
void FakeCoordinator::ListCheckpoints(v1::AuthorizedListCheckpoints,
                                      Done<v1::ListCheckpointsResponse> done) {
  v1::ListCheckpointsResponse response;
  for (const v1::CommitSaveRequest& commit : commits()) {
    if (commit.error_code() == 0) response.add_checkpoints()->set_step(commit.step());
  }
  std::move(done)(response);
}
void FakeCoordinator::ShowCheckpoint(v1::AuthorizedShowCheckpoint,
                                     Done<v1::ShowCheckpointResponse> done) {
  std::move(done)(absl::NotFoundError("not in this test"));
}
void FakeCoordinator::RemoveCheckpoints(v1::AuthorizedRemoveCheckpoints,
                                        Done<v1::RemoveCheckpointsResponse> done) {
  std::move(done)(absl::NotFoundError("not in this test"));
}

int FakeCoordinator::plans() const {
  absl::MutexLock lock(&mutex_);
  return plans_;
}
std::vector<v1::CommitSaveRequest> FakeCoordinator::commits() const {
  absl::MutexLock lock(&mutex_);
  return commits_;
}

void FakeCoordinator::SetEpoch(uint64_t epoch) {
  absl::MutexLock lock(&mutex_);
  epoch_ = epoch;
}

uint64_t FakeCoordinator::newest_epoch() const {
  absl::MutexLock lock(&mutex_);
  return newest_epoch_;
}
void FakeCoordinator::HoldStaged() {
  absl::MutexLock lock(&mutex_);
  holds_staged_ = true;
}
void FakeCoordinator::FinishStaged(const absl::Status& answer) {
  std::vector<Done<v1::ReportStagedResponse>> held;
  {
    absl::MutexLock lock(&mutex_);
    auto asked = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !held_staged_.empty(); };
    mutex_.Await(absl::Condition(&asked));
    held = std::exchange(held_staged_, {});
  }
  for (auto& done : held) std::move(done)(answer);
}
void FakeCoordinator::HoldPlans() {
  absl::MutexLock lock(&mutex_);
  holds_plans_ = true;
}
void FakeCoordinator::HoldCommits() {
  absl::MutexLock lock(&mutex_);
  holds_commits_ = true;
}
void FakeCoordinator::FinishCommits() {
  std::vector<Done<v1::CommitSaveResponse>> held;
  {
    absl::MutexLock lock(&mutex_);
    auto asked = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !held_commits_.empty(); };
    mutex_.Await(absl::Condition(&asked));
    held = std::exchange(held_commits_, {});
  }
  for (auto& done : held) std::move(done)(v1::CommitSaveResponse());
}

void CountingProbe::StallReported(double seconds) {
  absl::MutexLock lock(&mutex_);
  longest_stall_ = std::max(longest_stall_, seconds);
}
void CountingProbe::CoordinatorCallRetried(absl::StatusCode) {
  absl::MutexLock lock(&mutex_);
  ++retries_;
}
void CountingProbe::ArenaUsed(uint64_t used_bytes, uint64_t, uint64_t) {
  absl::MutexLock lock(&mutex_);
  arena_used_bytes_ = used_bytes;
}
void CountingProbe::RestoreFinished(double, uint64_t bytes_read, uint64_t bytes_from_arena) {
  absl::MutexLock lock(&mutex_);
  bytes_from_storage_ += bytes_read;
  bytes_from_arena_ += bytes_from_arena;
}
void CountingProbe::Warning(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  absl::StrAppend(&warnings_, text, "\n");
}
uint64_t CountingProbe::bytes_from_storage() const {
  absl::MutexLock lock(&mutex_);
  return bytes_from_storage_;
}
uint64_t CountingProbe::bytes_from_arena() const {
  absl::MutexLock lock(&mutex_);
  return bytes_from_arena_;
}
std::string CountingProbe::warnings() const {
  absl::MutexLock lock(&mutex_);
  return warnings_;
}
void CountingProbe::AwaitArenaUsed(uint64_t bytes) {
  absl::MutexLock lock(&mutex_);
  auto reached = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return arena_used_bytes_ == bytes; };
  mutex_.Await(absl::Condition(&reached));
}
double CountingProbe::longest_stall() const {
  absl::MutexLock lock(&mutex_);
  return longest_stall_;
}
int CountingProbe::retries() const {
  absl::MutexLock lock(&mutex_);
  return retries_;
}
void CountingProbe::SessionClosed() {
  absl::MutexLock lock(&mutex_);
  ++closed_;
}
void CountingProbe::ChecksumMismatch() {
  absl::MutexLock lock(&mutex_);
  ++mismatches_;
}
void CountingProbe::KeptImageChanged() {
  absl::MutexLock lock(&mutex_);
  ++changed_images_;
}
void CountingProbe::AwaitClosed(int sessions) {
  absl::MutexLock lock(&mutex_);
  auto enough = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_ >= sessions; };
  mutex_.Await(absl::Condition(&enough));
}
int CountingProbe::mismatches() const {
  absl::MutexLock lock(&mutex_);
  return mismatches_;
}
int CountingProbe::changed_images() const {
  absl::MutexLock lock(&mutex_);
  return changed_images_;
}

NodeFixture::NodeFixture(const FixtureOptions& wanted)
    : posix(MakePosixFileSystem()), files(*posix), time(clock), alarms(SystemClock()) {
  REQUIRE(chmod(folder.path().c_str(), 0755) == 0);  // trainers may be other users
  NodeOptions options;
  options.node_name = "n0";
  options.socket_directory = folder.path();
  options.version = "test";
  options.stores["main"] = folder.path();
  options.arena_bytes = wanted.arena_bytes;
  options.keep_images = wanted.keep_images;
  options.session_limit_per_user = wanted.session_limit_per_user;
  options.load_windows = 2;
  const Clock& node_clock = wanted.manual_time ? clock : SystemClock();
  Alarms& node_alarms = wanted.manual_time ? static_cast<Alarms&>(time) : alarms;
  absl::StatusOr<std::unique_ptr<Node>> created =
      Node::Create(options, {files, node_clock, node_alarms, coordinator, probe});
  INFO(created.status().ToString());
  REQUIRE(created.ok());
  node = *std::move(created);
}

std::string NodeFixture::HandlePath() const {
  return absl::StrCat(folder.path(), "/", kHandleSocketName);
}
std::string NodeFixture::StorePath() const { return folder.path(); }

TestTrainer::TestTrainer(NodeFixture& fixture, uint32_t rank) : fixture_(fixture), rank_(rank) {
  absl::StatusOr<UniqueFd> socket = ConnectHandleSocket(fixture.HandlePath(), absl::Seconds(60));
  REQUIRE(socket.ok());
  socket_ = *std::move(socket);
  SayHello();
}

TestTrainer::TestTrainer(NodeFixture& fixture, uint32_t rank, uint32_t user_id)
    : fixture_(fixture), rank_(rank) {
  // The system call itself concerns one thread only, the C library's function all.
  std::thread other([&] {
    if (syscall(SYS_setresuid, -1, user_id, -1) != 0) return;
    absl::StatusOr<UniqueFd> socket = ConnectHandleSocket(fixture.HandlePath(), absl::Seconds(60));
    if (socket.ok()) socket_ = *std::move(socket);
  });
  other.join();
  REQUIRE(socket_.valid());
  SayHello();
}

void TestTrainer::SayHello() {
  v1::HandleRequest hello;
  hello.mutable_hello()->set_protocol_version(kProtocolVersion);
  REQUIRE(SendHandlePacket(socket_.get(), hello).ok());
  v1::HandleReply reply;
  REQUIRE(ReceiveHandlePacket(socket_.get(), reply).ok());
  absl::StatusOr<SessionPtr> session = fixture_.node->Authenticate(reply.welcome().session_token());
  REQUIRE(session.ok());
  session_ = *session;
}

Pending<v1::JoinResponse> TestTrainer::Join(const std::string& job, uint32_t world_size,
                                            bool reader) {
  job_ = job;
  if (reader) epoch_ = 0;
  v1::JoinRequest request;
  request.set_job(job);
  request.set_store("main");
  request.set_world_size(world_size);
  request.set_local_world_size(local_world_size_is_known ? world_size : 0);
  request.set_rank(rank_);
  request.set_run_token("run");
  request.set_reader(reader);
  request.set_process_nonce(std::string(16, static_cast<char>('a' + rank_)));
  request.set_timeout_seconds(timeout_seconds);
  Pending<v1::JoinResponse> pending;
  fixture_.node->Join(session_, request, pending.done());
  return pending;
}

void TestTrainer::SetState(std::vector<TestTensor> tensors, std::vector<TestTensor> values) {
  tensors_ = std::move(tensors);
  values_ = std::move(values);
  v1::Layout layout;
  for (const TestTensor& tensor : tensors_) {
    v1::Shard* shard = layout.add_shards();
    shard->set_name(tensor.name);
    shard->set_data_type(v1::DATA_TYPE_U8);
    shard->add_shape(tensor.bytes.size());
    shard->add_offsets(0);
    shard->add_lengths(tensor.bytes.size());
  }
  for (const TestTensor& value : values_) layout.add_values(value.name);
  layout_ = layout.SerializeAsString();
}

Pending<v1::BeginSaveResponse> TestTrainer::BeginSave(uint64_t step, uint64_t save_number) {
  v1::BeginSaveRequest request;
  request.set_job(job_);
  request.mutable_attempt()->set_epoch(epoch_);
  request.mutable_attempt()->set_save_number(save_number);
  request.set_step(step);
  request.set_fingerprint(Sha256Of(layout_));
  request.set_layout(layout_);
  for (const TestTensor& value : values_) {
    v1::SmallContent* content = request.add_small();
    content->set_size_bytes(value.bytes.size());
    content->set_sha256(Sha256Of(value.bytes));
  }
  request.set_timeout_seconds(timeout_seconds);
  Pending<v1::BeginSaveResponse> pending;
  fixture_.node->BeginSave(session_, request, pending.done());
  return pending;
}

MappedSlab::MappedSlab(UniqueFd given, uint64_t bytes)
    : descriptor(std::move(given)), size_bytes(bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.get(), 0);
  REQUIRE(address != MAP_FAILED);
  data = static_cast<char*>(address);
}

MappedSlab::~MappedSlab() { munmap(data, size_bytes); }

absl::Status TestTrainer::GetSlab(uint64_t slab_id) {
  v1::HandleRequest request;
  request.mutable_get_slab()->set_slab_id(slab_id);
  if (absl::Status s = SendHandlePacket(socket_.get(), request); !s.ok()) return s;
  v1::HandleReply reply;
  absl::StatusOr<UniqueFd> descriptor = ReceiveHandlePacket(socket_.get(), reply);
  if (!descriptor.ok()) return descriptor.status();
  if (reply.has_error()) {
    return absl::Status(static_cast<absl::StatusCode>(reply.error().code()),
                        reply.error().message());
  }
  slabs_[slab_id] = std::make_unique<MappedSlab>(*std::move(descriptor), reply.slab().size_bytes());
  return absl::OkStatus();
}

char* TestTrainer::Map(uint64_t slab_id) {
  if (!slabs_.contains(slab_id)) REQUIRE(GetSlab(slab_id).ok());
  return slabs_.at(slab_id)->data;
}

void TestTrainer::Write(const v1::Lease& lease, uint64_t offset, const std::string& bytes) {
  for (const v1::Segment& segment : lease.segments()) {
    const uint64_t begin = std::max(offset, segment.image_offset());
    const uint64_t end =
        std::min(offset + bytes.size(), segment.image_offset() + segment.length_bytes());
    if (begin >= end) continue;
    memcpy(Map(segment.slab_id()) + segment.slab_offset() + (begin - segment.image_offset()),
           bytes.data() + (begin - offset), end - begin);
  }
}

void TestTrainer::Copy(const v1::BeginSaveResponse& plan) {
  for (const v1::Placement& placement : plan.placements()) {
    Write(plan.tensors(), placement.image_offset(), tensors_[placement.shard()].bytes);
  }
  for (const v1::SmallPlacement& placement : plan.small_placements()) {
    Write(plan.small(), placement.image_offset(), values_[placement.content()].bytes);
  }
}

absl::Status TestTrainer::Finish(uint64_t save_number, const std::string& error) {
  v1::FinishSnapshotRequest request;
  request.set_job(job_);
  request.mutable_attempt()->set_epoch(epoch_);
  request.mutable_attempt()->set_save_number(save_number);
  request.set_error(error);
  Pending<v1::FinishSnapshotResponse> pending;
  fixture_.node->FinishSnapshot(session_, request, pending.done());
  return pending.Get().status();
}

absl::StatusOr<v1::SaveStatus> TestTrainer::Wait(uint64_t save_number, v1::SavePhase until) {
  v1::WaitSaveRequest request;
  request.set_job(job_);
  request.mutable_attempt()->set_epoch(epoch_);
  request.mutable_attempt()->set_save_number(save_number);
  request.set_until(until);
  request.set_timeout_seconds(60);
  Pending<v1::SaveStatus> pending;
  fixture_.node->WaitSave(session_, request, pending.done());
  return pending.Get();
}

absl::StatusOr<v1::SaveStatus> TestTrainer::Save(uint64_t step, uint64_t save_number) {
  Pending<v1::BeginSaveResponse> begun = BeginSave(step, save_number);
  if (!begun.Get().ok()) return begun.Get().status();
  Copy(*begun.Get());
  if (absl::Status s = Finish(save_number); !s.ok()) return s;
  return Wait(save_number, v1::SAVE_PHASE_DURABLE);
}

absl::StatusOr<std::string> TestTrainer::Load(const std::string& name, uint64_t bytes,
                                              uint64_t load_number) {
  const v1::BeginLoadRequest request = LoadRequest(load_number, {{name, bytes}});
  Pending<v1::BeginLoadResponse> begun = BeginLoad(request);
  if (!begun.Get().ok()) return begun.Get().status();
  auto received = Receive(request, *begun.Get());
  if (!received.ok()) return received.status();
  return received->first[0];
}

v1::BeginLoadRequest TestTrainer::LoadRequest(
    uint64_t load_number, const std::vector<std::pair<std::string, uint64_t>>& tensors,
    const std::vector<std::string>& values) const {
  v1::BeginLoadRequest request;
  request.set_job(job_);
  request.set_epoch(epoch_);
  request.set_load_number(load_number);
  request.mutable_selector()->set_latest(true);
  for (const auto& [name, bytes] : tensors) {
    v1::Shard* shard = request.mutable_layout()->add_shards();
    shard->set_name(name);
    shard->set_data_type(v1::DATA_TYPE_U8);
    shard->add_shape(bytes);
    shard->add_offsets(0);
    shard->add_lengths(bytes);
  }
  for (const std::string& value : values) request.mutable_layout()->add_values(value);
  request.set_timeout_seconds(60);
  return request;
}

Pending<v1::BeginLoadResponse> TestTrainer::BeginLoad(const v1::BeginLoadRequest& request) {
  Pending<v1::BeginLoadResponse> begun;
  fixture_.node->BeginLoad(session_, request, begun.done());
  return begun;
}

Pending<v1::NextWindowsResponse> TestTrainer::Next(uint64_t load_id,
                                                   const std::vector<uint64_t>& released) {
  v1::NextWindowsRequest request;
  request.set_load_id(load_id);
  request.set_timeout_seconds(3600);
  for (uint64_t id : released) request.add_released_window_ids(id);
  Pending<v1::NextWindowsResponse> pending;
  fixture_.node->NextWindows(session_, request, pending.done());
  return pending;
}

absl::Status TestTrainer::EndLoad(uint64_t load_id) {
  v1::EndLoadRequest request;
  request.set_load_id(load_id);
  Pending<v1::EndLoadResponse> pending;
  fixture_.node->EndLoad(session_, request, pending.done());
  return pending.Get().status();
}

absl::StatusOr<std::pair<std::vector<std::string>, std::vector<std::string>>> TestTrainer::Receive(
    const v1::BeginLoadRequest& request, const v1::BeginLoadResponse& begun,
    const v1::NextWindowsResponse& taken) {
  std::vector<std::string> tensors, values;
  for (const v1::Shard& shard : request.layout().shards()) {
    tensors.emplace_back(shard.lengths(0), '\0');
  }
  for (const v1::SmallDelivery& small : begun.small())
    values.emplace_back(small.size_bytes(), '\0');
  absl::Status result;
  std::vector<uint64_t> released;
  const auto copy = [&](const v1::NextWindowsResponse& windows) {
    released.clear();
    for (const v1::Window& window : windows.windows()) {
      const char* bytes = Map(window.slab_id()) + window.slab_offset();
      for (uint32_t shard : window.shards()) {
        memcpy(tensors[shard].data() + window.first_element(), bytes, window.length_bytes());
      }
      for (uint32_t small : window.small()) {
        memcpy(values[small].data() + window.first_element(), bytes, window.length_bytes());
      }
      released.push_back(window.window_id());
    }
  };
  copy(taken);
  for (bool done = taken.done(); !done;) {
    Pending<v1::NextWindowsResponse> next = Next(begun.load_id(), released);
    result = next.Get().status();
    if (!result.ok()) break;
    copy(*next.Get());
    done = next.Get()->done();
  }
  if (absl::Status ended = EndLoad(begun.load_id()); result.ok()) result = ended;
  if (!result.ok()) return result;
  return std::pair(tensors, values);
}

void TestTrainer::SetPaused(bool paused) {
  v1::SetPersistPausedRequest request;
  request.set_paused(paused);
  Pending<v1::SetPersistPausedResponse> done;
  fixture_.node->SetPersistPaused(session_, request, done.done());
  REQUIRE(done.Get().ok());
}

}  // namespace ckptd
