#include "client/cpp/client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/fork_guard.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

constexpr size_t kMostOutstandingSnapshots = 64;
constexpr absl::Duration kGiveUpTimeout = absl::Seconds(2);
constexpr absl::Duration kAdminTimeout = absl::Minutes(1);
constexpr absl::Duration kLongestTimeout = absl::Hours(24 * 365);
// The longer socket name and a slash must fit behind the folder.
constexpr size_t kLongestSocketDir =
    kMaxUnixSocketPathBytes - std::max(sizeof(kGrpcSocketName), sizeof(kHandleSocketName));

absl::Status CheckTimeout(absl::Duration timeout) {
  if (timeout > absl::ZeroDuration() && timeout <= kLongestTimeout) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a timeout of ", absl::FormatDuration(timeout), " is not between 0 and a year"));
}

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.socket_dir.empty() || options.socket_dir[0] != '/') {
    return absl::InvalidArgumentError(
        absl::StrCat("socket_dir \"", options.socket_dir, "\" is not an absolute path"));
  }
  if (options.socket_dir.size() > kLongestSocketDir) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket_dir ", options.socket_dir, " has ", options.socket_dir.size(),
                     " bytes; a Unix socket's path leaves room for ", kLongestSocketDir));
  }
  if (options.world_size == 0 || options.rank >= options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " is not in a world of ",
                                                   options.world_size, " ranks"));
  }
  if (options.local_world_size > options.world_size) {
    return absl::InvalidArgumentError(absl::StrCat("local_world_size ", options.local_world_size,
                                                   " is larger than the world of ",
                                                   options.world_size, " ranks"));
  }
  if (options.run_token.empty()) return absl::InvalidArgumentError("run_token is empty");
  return CheckTimeout(options.join_timeout);
}

// The node says itself what it was doing, in the same words: once is enough.
absl::Status AnnotateOnce(const absl::Status& status, const std::string& doing) {
  return absl::StartsWith(status.message(), doing) ? status : Annotate(status, doing);
}

std::string DescribeSave(const SaveRequest& request) {
  return absl::StrCat("saving step ", request.step, " of job ", Printable(request.job));
}

v1::BeginSaveRequest SaveMessage(const SaveRequest& request, const SmallContents& small,
                                 uint64_t save_number) {
  v1::BeginSaveRequest message;
  message.set_job(request.job);
  message.mutable_attempt()->set_save_number(save_number);
  message.set_step(request.step);
  message.set_fingerprint(request.layout->fingerprint());
  message.mutable_small()->Reserve(static_cast<int>(small.size()));
  for (size_t i = 0; i < small.size(); ++i) {
    v1::SmallContent* content = message.add_small();
    content->set_size_bytes(small.content(i).size());
    content->set_sha256(Sha256(small.content(i).data(), small.content(i).size()));
  }
  message.set_overwrite(request.overwrite);
  for (const auto& [key, value] : request.tags) (*message.mutable_tags())[key] = value;
  message.set_timeout_seconds(absl::ToDoubleSeconds(request.timeout));
  return message;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Open(ClientOptions options) {
  if (absl::Status valid = CheckOptions(options); !valid.ok()) return valid;
  std::unique_ptr<Client> client(new Client(std::move(options)));
  const auto connection = client->link_->Connection();
  if (!connection.ok()) return connection.status();
  return client;
}

Client::Client(ClientOptions options)
    : link_(std::make_shared<NodeLink>(std::move(options))),
      copier_(/*threads=*/1, kMostOutstandingSnapshots) {}

Client::~Client() {
  if (!InForkedChild()) Close();
}

void Client::Close() {
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
  }
  copier_.Stop();
  link_->Disconnect();
}

absl::Status Client::CheckOpen() const {
  if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::FailedPreconditionError("the client was closed");
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<SaveHandle>> Client::Save(SaveRequest request) {
  if (absl::Status open = CheckOpen(); !open.ok()) return open;
  uint64_t save_number;
  {
    absl::MutexLock lock(&mutex_);
    save_number = ++jobs_[request.job].saves;
  }
  if (absl::Status valid = CheckTimeout(request.timeout); !valid.ok()) return valid;
  const SmallContents small(request);
  absl::StatusOr<Admitted> admitted = BeginSave(request, small, save_number);
  if (!admitted.ok()) return AnnotateOnce(admitted.status(), DescribeSave(request));

  const auto handle = std::make_shared<SaveHandle>(
      link_, admitted->connection, SaveHandle::Name{request.job, request.step, admitted->attempt},
      request.started);
  const std::shared_ptr<NodeConnection> connection = admitted->connection;
  absl::StatusOr<Snapshot> snapshot = Snapshot::Start(
      request, small, admitted->response, *admitted->placements,
      [&connection](uint64_t slab_id) { return connection->Slab(slab_id); },
      [&](uint64_t copied_bytes) {
        return handle->ExtendLease(copied_bytes, request.timeout, OnInterrupt::kGiveUp);
      });
  absl::Status started = snapshot.status();
  if (started.ok()) {
    handle->EndBlocking();
    started = copier_.Submit([handle, snapshot = *std::move(snapshot), connection,
                              observer = request.observer, timeout = request.timeout]() mutable {
      absl::Status copied = snapshot.CopyDeferred(*observer, [&](uint64_t copied_bytes) {
        return handle->ExtendLease(copied_bytes, timeout, OnInterrupt::kGoOn);
      });
      // Asked in any case: it also says that the caller's memory is free again.
      const absl::Status accepted = observer->AfterLastCopy();
      if (copied.ok()) copied = accepted;
      handle->EndSnapshot(std::move(copied));
    });
  }
  if (!started.ok()) {
    started = Annotate(started, DescribeSave(request));
    if (absl::IsCancelled(started)) {
      GiveUp(request, *admitted);
    } else {
      handle->EndSnapshot(started);
    }
    return started;
  }
  return handle;
}

void Client::SkipSave(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  ++jobs_[job].saves;
}

absl::StatusOr<Client::Admitted> Client::BeginSave(const SaveRequest& request,
                                                   const SmallContents& small,
                                                   uint64_t save_number) {
  v1::BeginSaveRequest message = SaveMessage(request, small, save_number);
  Admitted admitted;
  const absl::Status begun =
      link_->CallAsMember(request.job, [&](const Membership& membership) -> absl::Status {
        return BeginSaveIn(membership, request, message, admitted);
      });
  if (absl::IsCancelled(begun) && admitted.connection != nullptr) GiveUp(request, admitted);
  if (!begun.ok()) return begun;
  if (absl::Status resolved = ResolvePlan(request, admitted); !resolved.ok()) return resolved;
  return admitted;
}

absl::Status Client::BeginSaveIn(const Membership& membership, const SaveRequest& request,
                                 v1::BeginSaveRequest& message, Admitted& admitted) {
  message.mutable_attempt()->set_epoch(membership.epoch);
  admitted.connection = membership.connection;
  admitted.attempt = message.attempt();
  {
    absl::MutexLock lock(&mutex_);
    const KnownPlan& plan = jobs_[request.job].plan;
    const bool known = plan.instance_id == membership.connection->instance_id() &&
                       plan.fingerprint == request.layout->fingerprint();
    message.set_known_plan_id(known ? plan.plan_id : "");
    message.set_layout(known ? "" : request.layout->serialized());
  }
  absl::Status begun =
      membership.connection->BeginSave(message, &admitted.response, request.timeout);
  if (!begun.ok() || !admitted.response.need_layout()) return begun;
  message.set_known_plan_id("");
  message.set_layout(request.layout->serialized());
  begun = membership.connection->BeginSave(message, &admitted.response, request.timeout);
  if (begun.ok() && admitted.response.need_layout()) {
    return absl::InternalError("the node asks for a layout that it was given");
  }
  return begun;
}

// The node may have begun it: the other ranks, and our next save, must not wait for this one.
void Client::GiveUp(const SaveRequest& request, const Admitted& admitted) {
  v1::FinishSnapshotRequest finish;
  finish.set_job(request.job);
  *finish.mutable_attempt() = admitted.attempt;
  finish.set_error("save() was interrupted");
  // The answer is the attempt's error; where the node can't be told, the deadline ends it.
  admitted.connection->FinishSnapshot(finish, kGiveUpTimeout).IgnoreError();
}

absl::Status Client::ResolvePlan(const SaveRequest& request, Admitted& admitted) {
  const v1::BeginSaveResponse& response = admitted.response;
  absl::MutexLock lock(&mutex_);
  KnownPlan& plan = jobs_[request.job].plan;
  const bool same_plan = plan.instance_id == admitted.connection->instance_id() &&
                         plan.fingerprint == request.layout->fingerprint() &&
                         plan.plan_id == response.plan_id();
  if (!same_plan || response.placements_size() > 0) {
    absl::StatusOr<std::vector<PlacedBox>> placements =
        ParsePlacements(response.placements(), *request.layout);
    if (!placements.ok()) return placements.status();
    plan = {admitted.connection->instance_id(), request.layout->fingerprint(), response.plan_id(),
            std::make_shared<const std::vector<PlacedBox>>(*std::move(placements))};
  }
  admitted.placements = plan.placements;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LoadHandle>> Client::Load(LoadRequest request) {
  if (absl::Status open = CheckOpen(); !open.ok()) return open;
  const absl::Time deadline = absl::Now() + request.timeout;
  v1::BeginLoadRequest message;
  {
    absl::MutexLock lock(&mutex_);
    message.set_load_number(++jobs_[request.job].loads);
  }
  if (absl::Status valid = CheckTimeout(request.timeout); !valid.ok()) return valid;
  message.set_job(request.job);
  *message.mutable_selector() = request.selector;
  *message.mutable_layout() = request.layout->message();
  *message.mutable_options() = request.options;
  std::shared_ptr<NodeConnection> connection;
  v1::BeginLoadResponse plan;
  const absl::Status begun =
      link_->CallAsMember(request.job, [&](const Membership& membership) -> absl::Status {
        connection = membership.connection;
        message.set_epoch(membership.epoch);
        const absl::Duration left = std::max(absl::ZeroDuration(), deadline - absl::Now());
        message.set_timeout_seconds(absl::ToDoubleSeconds(left));
        return connection->BeginLoad(message, &plan, left);
      });
  if (!begun.ok()) {
    const v1::CheckpointSelector& which = request.selector;
    return AnnotateOnce(begun, absl::StrCat("loading ",
                                            which.latest() ? "the latest checkpoint"
                                                           : absl::StrCat("step ", which.step()),
                                            " of job ", Printable(request.job)));
  }
  return std::make_unique<LoadHandle>(std::move(connection), std::move(request), std::move(plan),
                                      deadline);
}

absl::StatusOr<v1::ListCheckpointsResponse> Client::ListCheckpoints(const std::string& job) {
  if (absl::Status open = CheckOpen(); !open.ok()) return open;
  v1::ListCheckpointsRequest request;
  request.set_job(job);
  v1::ListCheckpointsResponse response;
  const absl::Status status = link_->CallInSession([&](NodeConnection& connection) -> absl::Status {
    return connection.ListCheckpoints(request, &response, kAdminTimeout);
  });
  if (!status.ok()) return Annotate(status, absl::StrCat("listing job ", Printable(job)));
  return response;
}

absl::StatusOr<v1::ShowCheckpointResponse> Client::ShowCheckpoint(
    const std::string& job, const v1::CheckpointSelector& selector) {
  if (absl::Status open = CheckOpen(); !open.ok()) return open;
  v1::ShowCheckpointRequest request;
  request.set_job(job);
  *request.mutable_selector() = selector;
  v1::ShowCheckpointResponse response;
  const absl::Status status = link_->CallInSession([&](NodeConnection& connection) -> absl::Status {
    return connection.ShowCheckpoint(request, &response, kAdminTimeout);
  });
  if (!status.ok()) return Annotate(status, absl::StrCat("showing job ", Printable(job)));
  return response;
}

absl::Status Client::RemoveCheckpoint(const std::string& job, uint64_t step) {
  if (absl::Status open = CheckOpen(); !open.ok()) return open;
  v1::RemoveCheckpointsRequest request;
  request.set_job(job);
  request.set_step(step);
  v1::RemoveCheckpointsResponse response;
  return Annotate(link_->CallInSession([&](NodeConnection& connection) -> absl::Status {
    return connection.RemoveCheckpoints(request, &response, kAdminTimeout);
  }),
                  absl::StrCat("removing step ", step, " of job ", Printable(job)));
}

}  // namespace ckptd
