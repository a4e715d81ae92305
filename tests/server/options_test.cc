#include "daemon/server/options.h"

#include "tests/catch.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

const Machine kRoot{.user_id = 0,
                    .home = "/root",
                    .runtime_dir = "",
                    .host_name = "host1.example.org",
                    .memory_bytes = uint64_t{16} << 30};
const Machine kUser{.user_id = 1000,
                    .home = "/home/u",
                    .runtime_dir = "/run/user/1000",
                    .host_name = "host1",
                    .memory_bytes = uint64_t{256} << 30};

std::string ErrorOf(Role role, const std::vector<std::string>& arguments) {
  return std::string(ParseServerOptions(role, arguments, kRoot).status().message());
}

TEST_CASE("standalone needs no option") {
  auto options = ParseServerOptions(Role::kStandalone, {}, kRoot);
  REQUIRE(options.ok());
  CHECK(options->socket_dir == "/run/ckptd");
  CHECK(options->stores.at("default") == "/var/lib/ckptd/checkpoints");
  CHECK(options->node_name == "host1");
  CHECK(options->arena_bytes == uint64_t{4} << 30);
  CHECK(options->metrics_listen->ToString() == "127.0.0.1:9464");
  CHECK_FALSE(options->listen.has_value());
  CHECK(options->cluster_secret_file.empty());
}

TEST_CASE("another user's standalone lives in that user's folders, with at most 8 GiB of arena") {
  auto options = ParseServerOptions(Role::kStandalone, {}, kUser);
  REQUIRE(options.ok());
  CHECK(options->socket_dir == "/run/user/1000/ckptd");
  CHECK(options->state_dir == "/home/u/.local/state/ckptd");
  CHECK(options->arena_bytes == uint64_t{8} << 30);
}

TEST_CASE("a node's missing and wrong options are all listed at once") {
  const std::string error =
      ErrorOf(Role::kNode, {"--node-name=../x", "--metrics-listen=elsewhere", "--arena-bytes=2MiB",
                            "--slab-bytes=4MiB", "--listen=unix:/x"});
  CHECK_THAT(error, Contains("--node-name: "));
  CHECK_THAT(error, Contains("--metrics-listen: \"elsewhere\" is no address"));
  CHECK_THAT(error, Contains("--listen is no option here"));
  CHECK_THAT(error, Contains("--store is required by node"));
  CHECK_THAT(error, Contains("--coordinator is required by node"));
  CHECK_THAT(error, Contains("--slab-bytes: 4MiB is more than --arena-bytes, 2MiB"));
}

TEST_CASE("listening beyond loopback is refused unless it is asked for in so many words") {
  const std::vector<std::string> open = {"--store=s=/s", "--listen=0.0.0.0:9470",
                                         "--metrics-listen=[::]:9465"};
  const std::string error = ErrorOf(Role::kCoordinator, open);
  CHECK_THAT(error, Contains("--listen: 0.0.0.0:9470 can be reached from other machines"));
  CHECK_THAT(error, Contains("--metrics-listen: [::]:9465 can be reached"));

  std::vector<std::string> insisting = open;
  insisting.push_back("--insecure-listen-beyond-loopback");
  CHECK(ParseServerOptions(Role::kCoordinator, insisting, kRoot).ok());
}

TEST_CASE("a coordinator on TCP has a secret, and a node there must name it") {
  auto coordinator =
      ParseServerOptions(Role::kCoordinator, {"--store=s=/s", "--listen=127.0.0.1:9470"}, kRoot);
  REQUIRE(coordinator.ok());
  CHECK(coordinator->cluster_secret_file == "/var/lib/ckptd/cluster-secret");
  CHECK_THAT(ErrorOf(Role::kNode, {"--store=s=/s", "--coordinator=127.0.0.1:9470"}),
             Contains("--cluster-secret-file is required"));
  CHECK(ParseServerOptions(Role::kNode, {"--store=s=/s", "--coordinator=unix:/run/c"}, kRoot).ok());
}

TEST_CASE("a socket folder whose sockets would have too long paths is refused") {
  CHECK_THAT(ErrorOf(Role::kStandalone, {"--socket-dir=/" + std::string(100, 'x')}),
             Contains("the system's limit is 107; choose a shorter --socket-dir"));
}

TEST_CASE("a store needs a name and an absolute path, and each name once") {
  CHECK_THAT(ErrorOf(Role::kStandalone, {"--store=/x"}), Contains("has no name"));
  CHECK_THAT(ErrorOf(Role::kStandalone, {"--store=a=x"}), Contains("is not an absolute path"));
  CHECK_THAT(ErrorOf(Role::kStandalone, {"--store=a=/x", "--store=a=/y"}),
             Contains("\"a\" is given twice"));
}

TEST_CASE("addresses are read in all three forms and no other") {
  CHECK(ParseAddress("unix:/run/x")->is_unix());
  CHECK(ParseAddress("[::1]:80")->ToString() == "[::1]:80");
  CHECK(ParseAddress("host:80")->port == 80);
  for (const char* wrong : {"", "host", ":80", "::1:80", "host:99999", "host:x", "unix:x"}) {
    INFO(wrong);
    CHECK_FALSE(ParseAddress(wrong).ok());
  }
}

TEST_CASE("only what stays on this machine is loopback") {
  for (const char* near : {"unix:/x", "127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"}) {
    INFO(near);
    CHECK(ParseAddress(near)->is_loopback());
  }
  for (const char* far : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "host:1", "127.0.0.1.evil.org:1"}) {
    INFO(far);
    CHECK_FALSE(ParseAddress(far)->is_loopback());
  }
}

}  // namespace
}  // namespace ckptd
