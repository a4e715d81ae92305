// The node's two ends of gRPC, over real channels: its services' guard, and its client
// of the coordinator.
#include "ckptd/v1/coordinator.grpc.pb.h"
#include "ckptd/v1/node.grpc.pb.h"
#include "daemon/node/call_budget.h"
#include "daemon/node/grpc_coordinator_client.h"
#include "daemon/node/node_service.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/rpc/status.h"
#include "proto/rpc/wire.h"
#include "tests/catch.h"
#include "tests/node/node_fixture.h"

namespace ckptd {
namespace {

std::unique_ptr<grpc::Server> Serve(const std::vector<grpc::Service*>& services) {
  grpc::ServerBuilder builder;
  for (grpc::Service* service : services) builder.RegisterService(service);
  return builder.BuildAndStart();
}

TEST_CASE("invariant 7: every call without a living session's token is refused") {
  NodeFixture fixture;
  TestTrainer trainer(fixture, 0);
  std::vector<std::unique_ptr<grpc::Service>> services = MakeNodeServices(*fixture.node);
  std::unique_ptr<grpc::Server> server = Serve({services[0].get(), services[1].get()});
  auto channel = server->InProcessChannel({});
  const auto node = v1::Node::NewStub(channel);
  const auto admin = v1::Admin::NewStub(channel);
  const auto status_with = [&](const std::string& token) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata(kSessionMetadataKey, token);
    v1::GetNodeStatusResponse response;
    return admin->GetNodeStatus(&context, {}, &response);
  };
  CHECK(status_with("").error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(status_with(std::string(16, 'x')).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(status_with(trainer.session()->token).ok());
  grpc::ClientContext context;
  v1::BeginSaveResponse response;
  CHECK(node->BeginSave(&context, {}, &response).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  trainer.Disconnect();
  fixture.probe.AwaitClosed(1);
  CHECK(status_with(trainer.session()->token).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  server->Shutdown();
}

// Away for the first calls.
class LateCoordinator : public v1::Coordinator::Service {
 public:
  explicit LateCoordinator(int failures) : failures_(failures) {}
  grpc::Status PlanSave(grpc::ServerContext*, const v1::PlanSaveRequest* request,
                        v1::PlanSaveResponse* response) override {
    absl::MutexLock lock(&mutex_);
    ++calls_;
    if (failures_-- > 0) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not yet");
    response->set_plan_id(request->job());
    return grpc::Status::OK;
  }
  grpc::Status CommitSave(grpc::ServerContext*, const v1::CommitSaveRequest*,
                          v1::CommitSaveResponse*) override {
    absl::MutexLock lock(&mutex_);
    ++calls_;
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no");
  }
  int calls() const {
    absl::MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  mutable absl::Mutex mutex_;
  int failures_ ABSL_GUARDED_BY(mutex_);
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_CASE("a coordinator that is away is called again until it answers") {
  LateCoordinator coordinator(2);
  std::unique_ptr<grpc::Server> server = Serve({&coordinator});
  ThreadAlarms alarms(SystemClock());
  CountingProbe probe;
  std::unique_ptr<CoordinatorClient> client =
      MakeGrpcCoordinatorClient(server->InProcessChannel({}), "", SystemClock(), alarms, probe);
  v1::PlanSaveRequest request;
  request.set_job("gpt");
  request.set_timeout_seconds(600);
  Pending<v1::PlanSaveResponse> planned;
  client->PlanSave(request, planned.done());
  REQUIRE(planned.Get().ok());
  CHECK(planned.Get()->plan_id() == "gpt");
  CHECK(coordinator.calls() == 3);
  CHECK(probe.retries() == 2);
  server->Shutdown();
}

TEST_CASE("invariant 6: a coordinator that stays away is given up at the call's deadline") {
  LateCoordinator coordinator(1 << 30);
  std::unique_ptr<grpc::Server> server = Serve({&coordinator});
  ManualClock clock;
  clock.Set(absl::Now());
  ManualAlarms alarms(clock);
  CountingProbe probe;
  std::unique_ptr<CoordinatorClient> client =
      MakeGrpcCoordinatorClient(server->InProcessChannel({}), "", clock, alarms, probe);
  v1::PlanSaveRequest request;
  request.set_timeout_seconds(0.02);  // less than the first pause
  Pending<v1::PlanSaveResponse> planned;
  client->PlanSave(request, planned.done());
  CHECK(absl::IsUnavailable(planned.Get().status()));
  CHECK(coordinator.calls() == 1);
  server->Shutdown();
}

TEST_CASE("a refusal is not tried again") {
  LateCoordinator coordinator(0);
  std::unique_ptr<grpc::Server> server = Serve({&coordinator});
  ThreadAlarms alarms(SystemClock());
  CountingProbe probe;
  std::unique_ptr<CoordinatorClient> client =
      MakeGrpcCoordinatorClient(server->InProcessChannel({}), "", SystemClock(), alarms, probe);
  Pending<v1::CommitSaveResponse> committed;
  client->CommitSave({}, committed.done());
  CHECK(absl::IsFailedPrecondition(committed.Get().status()));
  CHECK(coordinator.calls() == 1);
  server->Shutdown();
}

TEST_CASE("an error's message is cut at its bound, between characters, and says so") {
  CHECK(CutText("short", 100) == "short");
  CHECK(CutText("aa\xc3\xa4"
                "bb",
                3) == "aa... and 4 more bytes");
  const grpc::Status status = ToGrpcStatus(absl::InternalError(std::string(2 << 20, 'x')));
  CHECK(status.error_message().size() < size_t{kMaxErrorMessageBytes} + 64);
  CHECK(status.error_message().find("... and 1048576 more bytes") != std::string::npos);
}

SessionPtr SessionOf(SessionId id, uint32_t user) {
  auto session = std::make_shared<Session>();
  session->id = id;
  session->user_id = user;
  return session;
}

TEST_CASE("invariant 4: calls under way are bounded per session, their bytes per user") {
  CallBudget budget(/*calls_per_session=*/2, /*bytes_per_user=*/100);
  const SessionPtr first = SessionOf(1, 7), second = SessionOf(2, 7), other = SessionOf(3, 8);
  absl::StatusOr<CallBudget::Share> one = budget.Take(first, 60);
  REQUIRE(one.ok());
  CHECK(absl::IsResourceExhausted(budget.Take(second, 60).status()));
  CHECK(budget.Take(other, 60).ok());
  absl::StatusOr<CallBudget::Share> two = budget.Take(first, 0);
  REQUIRE(two.ok());
  CHECK(absl::IsResourceExhausted(budget.Take(first, 0).status()));
  one->reset();
  CHECK(budget.Take(second, 100).ok());
}

}  // namespace
}  // namespace ckptd
