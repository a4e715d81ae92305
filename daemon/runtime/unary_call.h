// The one adapter between gRPC's callback API and our services: a service method
// takes a request and a `done` that it calls once, now or much later, from any
// thread. Cancelled calls are finished at once, so that shutdown never hangs on a
// parked call; a `done` that comes after that is ignored.
//
//   grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
//                                  const v1::JoinRequest* request,
//                                  v1::JoinResponse* response) override {
//     return ServeUnary<v1::JoinResponse>(response, [&](auto done) {
//       node_.Join(session, *request, std::move(done));
//     });
//   }
#ifndef CKPTD_DAEMON_RUNTIME_UNARY_CALL_H_
#define CKPTD_DAEMON_RUNTIME_UNARY_CALL_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/runtime/done.h"
#include "grpcpp/support/server_callback.h"
#include "proto/rpc/status.h"

namespace ckptd {

namespace unary_call_internal {

template <typename Response>
class Reactor : public grpc::ServerUnaryReactor {
 public:
  // Shared between the reactor, which gRPC deletes by OnDone, and `done`.
  struct State {
    absl::Mutex mutex;
    Reactor* reactor ABSL_GUARDED_BY(mutex);  // null once finished

    void Finish(absl::StatusOr<Response> result) {
      Reactor* finishing = nullptr;
      {
        absl::MutexLock lock(&mutex);
        finishing = std::exchange(reactor, nullptr);
      }
      if (finishing == nullptr) return;
      if (!result.ok()) return finishing->Finish(ToGrpcStatus(result.status()));
      *finishing->response_ = *std::move(result);
      finishing->Finish(grpc::Status::OK);
    }
  };

  explicit Reactor(Response* response) : response_(response), state_(std::make_shared<State>()) {
    absl::MutexLock lock(&state_->mutex);
    state_->reactor = this;
  }

  std::shared_ptr<State> state() const { return state_; }
  void OnCancel() override {
    // Keeps the state alive: Finish may delete this reactor.
    std::shared_ptr<State> state = state_;
    state->Finish(absl::CancelledError("the caller went away"));
  }
  void OnDone() override { delete this; }

 private:
  Response* response_;
  std::shared_ptr<State> state_;
};

}  // namespace unary_call_internal

template <typename Response, typename Start>
grpc::ServerUnaryReactor* ServeUnary(Response* response, Start&& start) {
  auto* reactor = new unary_call_internal::Reactor<Response>(response);
  std::forward<Start>(start)(
      Done<Response>([state = reactor->state()](absl::StatusOr<Response> result) {
        state->Finish(std::move(result));
      }));
  return reactor;
}

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_UNARY_CALL_H_
