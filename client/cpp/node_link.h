// The client's standing relation to its node daemon: the present session, and the
// worlds that it has joined; made anew when the daemon was restarted.
#ifndef CKPTD_CLIENT_CPP_NODE_LINK_H_
#define CKPTD_CLIENT_CPP_NODE_LINK_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/cpp/node_connection.h"

namespace ckptd {

struct ClientOptions {
  std::string socket_dir;  // absolute
  std::string store = "default";
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t local_world_size = 0;  // 0: not known
  std::string run_token;
  bool reader = false;
  absl::Duration join_timeout = absl::Minutes(5);
};

// A session that has joined a job's world.
struct Membership {
  std::shared_ptr<NodeConnection> connection;
  uint64_t epoch = 0;
};

// May the call have failed because the daemon went away?
bool IsConnectionLost(const absl::Status& status);

// Thread-safe. Joining may take as long as options.join_timeout, during which other
// threads that want the same job wait too.
class NodeLink {
 public:
  explicit NodeLink(ClientOptions options);

  const ClientOptions& options() const { return options_; }
  // Of all its sessions' calls.
  Interrupt& interrupt() { return *interrupt_; }

  // The present session, opened where there is none.
  absl::StatusOr<std::shared_ptr<NodeConnection>> Connection() ABSL_LOCKS_EXCLUDED(mutex_);

  // The session to use after `lost` failed: a new one where the daemon was
  // restarted or does not know the token any more, else `lost` itself. Also when
  // another thread has done it before.
  absl::StatusOr<std::shared_ptr<NodeConnection>> Reconnect(
      const std::shared_ptr<NodeConnection>& lost, const absl::Status& why)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Joins the job's world in the present session unless that was done.
  absl::StatusOr<Membership> Join(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);

  // Calls `call` with a membership, and once more with a new one where the daemon
  // was restarted in between.
  [[nodiscard]] absl::Status CallAsMember(const std::string& job,
                                          absl::FunctionRef<absl::Status(const Membership&)> call);
  // The same without a world, for what needs only a session.
  [[nodiscard]] absl::Status CallInSession(absl::FunctionRef<absl::Status(NodeConnection&)> call);

  // Ends the session; what comes later opens a new one.
  void Disconnect() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct JobEntry {
    absl::Mutex mutex;  // held while joining
    Membership membership ABSL_GUARDED_BY(mutex);
  };

  std::shared_ptr<JobEntry> EntryOf(const std::string& job) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<Membership> JoinOnce(const std::string& job,
                                      const std::shared_ptr<NodeConnection>& connection);

  const ClientOptions options_;
  const std::string process_nonce_;
  const std::shared_ptr<Interrupt> interrupt_ = std::make_shared<Interrupt>();

  absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::shared_ptr<JobEntry>> jobs_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<NodeConnection> connection_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_NODE_LINK_H_
