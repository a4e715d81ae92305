#include "client/cpp/node_link.h"

#include <sys/random.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/fork_guard.h"
#include "client/cpp/layout.h"
#include "proto/rpc/status.h"

namespace ckptd {
namespace {

constexpr size_t kNonceBytes = 16;

std::string RandomNonce() {
  std::string nonce(kNonceBytes, '\0');
  // Up to 256 bytes, getrandom neither fails nor falls short.
  [[maybe_unused]] const ssize_t got = ::getrandom(nonce.data(), nonce.size(), 0);
  return nonce;
}

}  // namespace

bool IsConnectionLost(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsUnauthenticated(status);
}

NodeLink::NodeLink(ClientOptions options)
    : options_(std::move(options)), process_nonce_(RandomNonce()) {}

absl::StatusOr<std::shared_ptr<NodeConnection>> NodeLink::Connection() {
  if (absl::Status alive = CheckNotForked(); !alive.ok()) return alive;
  absl::MutexLock lock(&mutex_);
  if (connection_ != nullptr) return connection_;
  absl::StatusOr<std::shared_ptr<NodeConnection>> opened =
      NodeConnection::Open(options_.socket_dir, interrupt_);
  if (opened.ok()) connection_ = *opened;
  return opened;
}

absl::StatusOr<std::shared_ptr<NodeConnection>> NodeLink::Reconnect(
    const std::shared_ptr<NodeConnection>& lost, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  if (connection_ != nullptr && connection_ != lost) return connection_;
  absl::StatusOr<std::shared_ptr<NodeConnection>> opened =
      NodeConnection::Open(options_.socket_dir, interrupt_);
  if (!opened.ok()) return opened.status();
  // A daemon that lives on and only refused the call keeps its session: ending it
  // would fail the saves that run in it.
  const bool same_daemon = (*opened)->instance_id() == lost->instance_id();
  if (same_daemon && !absl::IsUnauthenticated(why)) return lost;
  connection_ = *opened;
  return opened;
}

absl::StatusOr<Membership> NodeLink::Join(const std::string& job) {
  absl::StatusOr<std::shared_ptr<NodeConnection>> connection = Connection();
  if (!connection.ok()) return connection.status();
  const std::shared_ptr<JobEntry> entry = EntryOf(job);
  absl::MutexLock lock(&entry->mutex);
  if (entry->membership.connection == *connection) return entry->membership;
  absl::StatusOr<Membership> membership = JoinOnce(job, *connection);
  if (!membership.ok() && IsConnectionLost(membership.status())) {
    absl::StatusOr<std::shared_ptr<NodeConnection>> again =
        Reconnect(*connection, membership.status());
    if (!again.ok()) return again.status();
    if (*again != *connection) membership = JoinOnce(job, *again);
  }
  if (membership.ok()) entry->membership = *membership;
  return membership;
}

std::shared_ptr<NodeLink::JobEntry> NodeLink::EntryOf(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  std::shared_ptr<JobEntry>& entry = jobs_[job];
  if (entry == nullptr) entry = std::make_shared<JobEntry>();
  return entry;
}

absl::StatusOr<Membership> NodeLink::JoinOnce(const std::string& job,
                                              const std::shared_ptr<NodeConnection>& connection) {
  v1::JoinRequest request;
  request.set_job(job);
  request.set_store(options_.store);
  request.set_world_size(options_.world_size);
  request.set_rank(options_.rank);
  request.set_local_world_size(options_.local_world_size);
  request.set_run_token(options_.run_token);
  request.set_process_nonce(process_nonce_);
  request.set_reader(options_.reader);
  request.set_timeout_seconds(absl::ToDoubleSeconds(options_.join_timeout));
  v1::JoinResponse response;
  const absl::Status status = connection->Join(request, &response, options_.join_timeout);
  if (!status.ok()) {
    return Annotate(status, absl::StrCat("rank ", options_.rank, " of ", options_.world_size,
                                         " joining job ", Printable(job)));
  }
  return Membership{connection, response.epoch()};
}

absl::Status NodeLink::CallAsMember(const std::string& job,
                                    absl::FunctionRef<absl::Status(const Membership&)> call) {
  absl::StatusOr<Membership> membership = Join(job);
  if (!membership.ok()) return membership.status();
  const absl::Status status = call(*membership);
  if (status.ok() || !IsConnectionLost(status)) return status;
  absl::StatusOr<std::shared_ptr<NodeConnection>> again = Reconnect(membership->connection, status);
  if (!again.ok()) return again.status();
  if (*again == membership->connection) return status;
  membership = Join(job);
  if (!membership.ok()) return membership.status();
  return call(*membership);
}

absl::Status NodeLink::CallInSession(absl::FunctionRef<absl::Status(NodeConnection&)> call) {
  absl::StatusOr<std::shared_ptr<NodeConnection>> connection = Connection();
  if (!connection.ok()) return connection.status();
  const absl::Status status = call(**connection);
  if (status.ok() || !IsConnectionLost(status)) return status;
  absl::StatusOr<std::shared_ptr<NodeConnection>> again = Reconnect(*connection, status);
  if (!again.ok()) return again.status();
  if (*again == *connection) return status;
  return call(**again);
}

void NodeLink::Disconnect() {
  absl::MutexLock lock(&mutex_);
  jobs_.clear();
  connection_ = nullptr;
}

}  // namespace ckptd
