#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/server/cluster_secret.h"
#include "daemon/server/instance_lock.h"
#include "daemon/server/ready_file.h"
#include "daemon/server/start_checks.h"
#include "tests/catch.h"
#include "tests/temporary_folder.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("a second daemon in the same socket folder is refused and told of the first") {
  TemporaryFolder folder;
  auto first = InstanceLock::Acquire(folder / "node.lock");
  REQUIRE(first.ok());
  auto second = InstanceLock::Acquire(folder / "node.lock");
  REQUIRE(absl::IsAlreadyExists(second.status()));
  CHECK_THAT(std::string(second.status().message()),
             Contains("process " + std::to_string(::getpid()) + " holds"));
}

TEST_CASE("a lock is free again when its holder is gone") {
  TemporaryFolder folder;
  { REQUIRE(InstanceLock::Acquire(folder / "node.lock").ok()); }
  CHECK(InstanceLock::Acquire(folder / "node.lock").ok());
}

TEST_CASE("missing folders are made, and every one that can't be is listed") {
  TemporaryFolder folder;
  WriteAll(folder / "file", "");
  ServerOptions options;
  options.socket_dir = folder / "a/b/run";
  options.state_dir = folder / "state";
  options.stores = {{"s", folder / "store"}};
  REQUIRE(PrepareFolders(options).ok());
  CHECK(std::filesystem::is_directory(folder / "a/b/run"));

  options.state_dir = folder / "file/state";
  options.stores["t"] = folder / "file/store";
  const absl::Status status = PrepareFolders(options);
  CHECK_THAT(std::string(status.message()), Contains("--state-dir: ") && Contains("--store t: "));
}

TEST_CASE("a dead daemon's socket is removed, and nothing else of that name") {
  TemporaryFolder folder;
  const std::string path = folder / "node.grpc";
  CHECK(RemoveStaleSocket(path).ok());

  sockaddr_un address = {.sun_family = AF_UNIX};
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(RemoveStaleSocket(path).ok());
  CHECK_FALSE(std::filesystem::exists(path));

  WriteAll(path, "precious");
  CHECK(absl::IsFailedPrecondition(RemoveStaleSocket(path)));
  CHECK(ReadAll(path) == "precious");
}

TEST_CASE("a cluster secret is made once, for its owner's eyes") {
  TemporaryFolder folder;
  const std::string path = folder / "secret";
  CHECK(absl::IsNotFound(ReadClusterSecret(path).status()));
  auto made = ReadOrMakeClusterSecret(path);
  REQUIRE(made.ok());
  CHECK(made->size() == 64);
  struct stat info = {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  CHECK(*ReadOrMakeClusterSecret(path) == *made);
  CHECK(*ReadClusterSecret(path) == *made);
}

TEST_CASE("a cluster secret that all can read, or that is short, is refused") {
  TemporaryFolder folder;
  const std::string path = folder / "secret";
  REQUIRE(ReadOrMakeClusterSecret(path).ok());
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK_THAT(std::string(ReadClusterSecret(path).status().message()), Contains("chmod 600"));
  WriteAll(path, "short\n");
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  CHECK_THAT(std::string(ReadClusterSecret(path).status().message()), Contains("has 5 characters"));
}

TEST_CASE("the ready file is one JSON object without the parts that a role lacks") {
  TemporaryFolder folder;
  REQUIRE(WriteReadyFile(folder / "ready", {.process_id = 7,
                                            .role = "coordinator",
                                            .version = "0.1.0",
                                            .coordinator_address = "127.0.0.1:9470",
                                            .metrics_port = 9465})
              .ok());
  CHECK(ReadAll(folder / "ready") ==
        "{\"pid\":7,\"role\":\"coordinator\",\"version\":\"0.1.0\","
        "\"coordinator_address\":\"127.0.0.1:9470\",\"metrics_port\":9465}\n");
}

}  // namespace
}  // namespace ckptd
