#include "client/cpp/fork_guard.h"

#include <sys/wait.h>
#include <unistd.h>

#include "client/cpp/worker_pool.h"
#include "tests/catch.h"

namespace ckptd {
namespace {

// Runs `body` in a forked child; its exit status.
template <typename Body>
int InChild(Body body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("a child forked after a client was used is marked, its parent is not") {
  MarkForksFromHere();
  CHECK(CheckNotForked().ok());
  CHECK(InChild([] { return absl::IsFailedPrecondition(CheckNotForked()) ? 7 : 1; }) == 7);
  CHECK(CheckNotForked().ok());
}

TEST_CASE("a pool with threads is destroyed without harm in a forked child") {
  MarkForksFromHere();
  auto* pool = new WorkerPool(2, 4);
  REQUIRE(pool->Submit([] {}).ok());
  CHECK(InChild([pool] {
          delete pool;
          return 7;
        }) == 7);
  delete pool;
}

}  // namespace
}  // namespace ckptd
