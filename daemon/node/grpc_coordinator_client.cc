#include "daemon/node/grpc_coordinator_client.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "ckptd/v1/coordinator.grpc.pb.h"
#include "grpcpp/client_context.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"

namespace ckptd {
namespace {

constexpr double kDefaultTimeoutSeconds = 30;
constexpr absl::Duration kFirstPause = absl::Milliseconds(50);
constexpr absl::Duration kLongestPause = absl::Seconds(2);

template <typename Request>
double TimeoutOf(const Request& request) {
  if constexpr (requires { request.timeout_seconds(); }) {
    if (request.timeout_seconds() > 0) return request.timeout_seconds();
  }
  return kDefaultTimeoutSeconds;
}

// What is under way, so that the end can cancel and await it.
class Calls {
 public:
  // False once closed.
  bool Enter(grpc::ClientContext* context) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    contexts_.insert(context);
    return true;
  }
  // Destroys it: a context holds the channel, whose last owner waits for the end of gRPC's
  // threads. So none of those may hold it once the end has been awaited.
  void Leave(std::unique_ptr<grpc::ClientContext> context) {
    absl::MutexLock lock(&mutex_);
    contexts_.erase(context.get());
    context.reset();
  }
  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    for (grpc::ClientContext* context : contexts_) context->TryCancel();
    auto empty = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return contexts_.empty(); };
    mutex_.Await(absl::Condition(&empty));
  }

 private:
  mutable absl::Mutex mutex_;
  std::set<grpc::ClientContext*> contexts_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

struct Shared {
  Shared(std::unique_ptr<v1::Coordinator::Stub> s, std::string secret, const Clock& c, Alarms& a,
         NodeProbe& p)
      : stub(std::move(s)), cluster_secret(std::move(secret)), clock(c), alarms(a), probe(p) {}

  std::unique_ptr<v1::Coordinator::Stub> stub;
  std::string cluster_secret;
  const Clock& clock;
  Alarms& alarms;
  NodeProbe& probe;
  Calls calls;
};

// One call with its repetitions; keeps itself alive until it has answered.
template <typename Request, typename Response>
class RetriedCall : public std::enable_shared_from_this<RetriedCall<Request, Response>> {
 public:
  using Method = void (v1::Coordinator::Stub::async_interface::*)(
      grpc::ClientContext*, const Request*, Response*, std::function<void(grpc::Status)>);

  RetriedCall(std::shared_ptr<Shared> shared, Method method, Request request, Done<Response> done)
      : shared_(std::move(shared)),
        method_(method),
        request_(std::move(request)),
        done_(std::move(done)),
        deadline_(shared_->clock.Now() + absl::Seconds(TimeoutOf(request_))) {}

  void Start() {
    context_ = std::make_unique<grpc::ClientContext>();
    const absl::Duration left = deadline_ - shared_->clock.Now();
    // The clock is the machine's here: gRPC waits by that one.
    context_->set_deadline(absl::ToChronoTime(deadline_ + absl::Seconds(kDeadlineSlackSeconds)));
    if (!shared_->cluster_secret.empty()) {
      context_->AddMetadata(kClusterSecretMetadataKey, shared_->cluster_secret);
    }
    if constexpr (requires { request_.set_timeout_seconds(1.0); }) {
      request_.set_timeout_seconds(std::max(0.001, absl::ToDoubleSeconds(left)));
    }
    if (!shared_->calls.Enter(context_.get())) return Cancelled();
    (shared_->stub->async()->*method_)(
        context_.get(), &request_, &response_,
        [self = this->shared_from_this()](grpc::Status status) { self->Finished(status); });
  }

 private:
  void Cancelled() { std::move(done_)(absl::CancelledError("the node daemon is shutting down")); }

  void Finished(const grpc::Status& grpc_status) {
    const absl::Status status = FromGrpcStatus(grpc_status);
    // A repetition has a context of its own, perhaps before we are through here.
    const std::shared_ptr<Shared> shared = shared_;
    std::unique_ptr<grpc::ClientContext> context = std::move(context_);
    const absl::Time now = shared->clock.Now();
    if (IsRetryable(status) && now + pause_ < deadline_ && !shared->calls.closed()) {
      shared->probe.CoordinatorCallRetried(status.code());
      const absl::Time next = now + pause_;
      pause_ = std::min(pause_ * 2, kLongestPause);
      shared->alarms.At(next, [self = this->shared_from_this()] { self->Start(); });
    } else if (status.ok()) {
      std::move(done_)(std::move(response_));
    } else {
      std::move(done_)(
          absl::Status(status.code(), absl::StrCat("coordinator: ", status.message())));
    }
    // Last: whoever waits for the end of calls may then destroy what they use.
    shared->calls.Leave(std::move(context));
  }

  std::shared_ptr<Shared> shared_;
  const Method method_;
  Request request_;
  Response response_;
  Done<Response> done_;
  const absl::Time deadline_;
  absl::Duration pause_ = kFirstPause;
  std::unique_ptr<grpc::ClientContext> context_;
};

class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  explicit GrpcCoordinatorClient(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  ~GrpcCoordinatorClient() override {
    shared_->calls.Close();
    shared_->stub.reset();  // here, not on the thread of a callback that is not through yet
  }

  void JoinWorld(v1::JoinWorldRequest request, Done<v1::JoinWorldResponse> done) override {
    Call(&Stub::JoinWorld, std::move(request), std::move(done));
  }
  void PlanSave(v1::PlanSaveRequest request, Done<v1::PlanSaveResponse> done) override {
    Call(&Stub::PlanSave, std::move(request), std::move(done));
  }
  void ReportStaged(v1::ReportStagedRequest request, Done<v1::ReportStagedResponse> done) override {
    Call(&Stub::ReportStaged, std::move(request), std::move(done));
  }
  void CommitSave(v1::CommitSaveRequest request, Done<v1::CommitSaveResponse> done) override {
    Call(&Stub::CommitSave, std::move(request), std::move(done));
  }
  void PlanLoad(v1::PlanLoadRequest request, Done<v1::PlanLoadResponse> done) override {
    Call(&Stub::PlanLoad, std::move(request), std::move(done));
  }
  void FinishLoad(v1::FinishLoadRequest request, Done<v1::FinishLoadResponse> done) override {
    Call(&Stub::FinishLoad, std::move(request), std::move(done));
  }
  void ListCheckpoints(v1::AuthorizedListCheckpoints request,
                       Done<v1::ListCheckpointsResponse> done) override {
    Call(&Stub::ListCheckpoints, std::move(request), std::move(done));
  }
  void ShowCheckpoint(v1::AuthorizedShowCheckpoint request,
                      Done<v1::ShowCheckpointResponse> done) override {
    Call(&Stub::ShowCheckpoint, std::move(request), std::move(done));
  }
  void RemoveCheckpoints(v1::AuthorizedRemoveCheckpoints request,
                         Done<v1::RemoveCheckpointsResponse> done) override {
    Call(&Stub::RemoveCheckpoints, std::move(request), std::move(done));
  }

 private:
  using Stub = v1::Coordinator::Stub::async_interface;

  template <typename Request, typename Response>
  void Call(typename RetriedCall<Request, Response>::Method method, Request request,
            Done<Response> done) {
    std::make_shared<RetriedCall<Request, Response>>(shared_, method, std::move(request),
                                                     std::move(done))
        ->Start();
  }

  const std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<CoordinatorClient> MakeGrpcCoordinatorClient(std::shared_ptr<grpc::Channel> channel,
                                                             std::string cluster_secret,
                                                             const Clock& clock, Alarms& alarms,
                                                             NodeProbe& probe) {
  return std::make_unique<GrpcCoordinatorClient>(std::make_shared<Shared>(
      v1::Coordinator::NewStub(channel), std::move(cluster_secret), clock, alarms, probe));
}

}  // namespace ckptd
