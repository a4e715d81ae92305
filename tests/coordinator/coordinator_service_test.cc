// The coordinator's gRPC face: who is let in, and that answers come back.
#include "daemon/coordinator/coordinator_service.h"

#include <grpcpp/grpcpp.h>

#include "proto/rpc/wire.h"
#include "tests/coordinator/two_nodes.h"

namespace ckptd {
namespace {

struct Served {
  explicit Served(const std::string& secret) : service(nodes.cluster.coordinator(), secret) {
    grpc::ServerBuilder builder;
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    REQUIRE(server != nullptr);
    stub = v1::Coordinator::NewStub(server->InProcessChannel({}));
  }
  ~Served() {
    server->Shutdown();
    server->Wait();
  }
  grpc::Status List(const std::string& secret, v1::ListCheckpointsResponse& response) {
    grpc::ClientContext context;
    if (!secret.empty()) context.AddMetadata(kClusterSecretMetadataKey, secret);
    return stub->ListCheckpoints(&context, {}, &response);
  }

  TwoNodes nodes;
  CoordinatorService service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<v1::Coordinator::Stub> stub;
};

TEST_CASE("invariant 7: a call without the cluster's secret, or with another, is not let in") {
  Served served("the secret");
  v1::ListCheckpointsResponse response;
  for (const char* wrong : {"", "the secreT", "the secret!", "the"}) {
    CHECK(served.List(wrong, response).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  CHECK(served.List("the secret", response).ok());
}

TEST_CASE("calls and errors of the coordinator pass through its service") {
  Served served("");
  served.nodes.Join();
  served.nodes.Save(40);
  v1::ListCheckpointsResponse response;
  REQUIRE(served.List("", response).ok());
  REQUIRE(response.checkpoints_size() == 1);
  CHECK(response.checkpoints(0).step() == 40);
  grpc::ClientContext context;
  v1::AuthorizedShowCheckpoint request;
  request.mutable_request()->set_job("none");
  v1::ShowCheckpointResponse shown;
  CHECK(served.stub->ShowCheckpoint(&context, request, &shown).error_code() ==
        grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace ckptd
