// The real executables: start, readiness, signals, exit statuses.
#include <signal.h>
#include <sys/stat.h>

#include "tests/catch.h"
#include "tests/server/child_process.h"
#include "tests/server/health_check.h"
#include "tests/server/http_get.h"
#include "tests/temporary_folder.h"

namespace ckptd {
namespace {

using Catch::Matchers::Contains;

// One machine's folders. Several daemons may share its store.
struct Machine {
  TemporaryFolder folder;

  std::vector<std::string> Command(const std::string& role,
                                   const std::vector<std::string>& more = {}) const {
    std::vector<std::string> command = {CKPTD_PROGRAM,
                                        role,
                                        "--socket-dir=" + (folder / role),
                                        "--state-dir=" + (folder / "state"),
                                        "--store=default=" + (folder / "store"),
                                        "--metrics-listen=127.0.0.1:0",
                                        "--ready-file=" + (folder / (role + ".ready"))};
    if (role != "coordinator") command.push_back("--arena-bytes=16MiB");
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }
  std::string Ready(const std::string& role) const { return ReadAll(folder / (role + ".ready")); }
};

// The number or string that follows "key": in the JSON text.
std::string Field(const std::string& json, const std::string& key) {
  const std::string mark = "\"" + key + "\":";
  const size_t begin = json.find(mark);
  if (begin == std::string::npos) return "";
  std::string value = json.substr(begin + mark.size());
  value.resize(value.find_first_of(",}"));
  if (value.starts_with("\"")) value = value.substr(1, value.size() - 2);
  return value;
}

int Ctl(const Machine& machine, const std::string& role, const std::vector<std::string>& words,
        std::string* output = nullptr) {
  std::vector<std::string> command = {CKPTCTL_PROGRAM, "--socket-dir=" + (machine.folder / role)};
  command.insert(command.end(), words.begin(), words.end());
  ChildProcess ctl(command);
  std::string line;
  while (!(line = ctl.ReadLine()).empty()) {
    if (output != nullptr) *output += line + "\n";
  }
  const int status = ctl.Wait();
  UNSCOPED_INFO(ctl.ReadErrors());
  return status;
}

TEST_CASE("standalone says when it is ready, answers, and ends with 0 on SIGTERM") {
  Machine machine;
  ChildProcess daemon(machine.Command("standalone", {"--node-name=n0"}));
  const std::string ready = daemon.ReadLine();
  INFO(daemon.ReadErrors());
  CHECK_THAT(ready, Contains("ckptd standalone ready: version=") && Contains("node=n0"));

  const std::string report = machine.Ready("standalone");
  CHECK(Field(report, "pid") == std::to_string(daemon.pid()));
  CHECK(HealthOf("unix:" + Field(report, "grpc_socket")) == "SERVING");
  const std::string metrics = HttpGet(std::stoi(Field(report, "metrics_port")), "/metrics");
  CHECK_THAT(metrics, Contains("ckptd_durable_seconds_count 0"));
  CHECK_THAT(metrics, Contains("ckptd_arena_bytes 16777216") || Contains("ckptd_arena_bytes 1.67"));

  std::string output;
  CHECK(Ctl(machine, "standalone", {"list"}, &output) == 0);
  CHECK(output == "no checkpoints\n");
  CHECK(Ctl(machine, "standalone", {"status"}, &output) == 0);
  CHECK_THAT(output, Contains("node n0"));
  CHECK(Ctl(machine, "standalone", {"show", "gpt", "latest"}) == 3);

  daemon.Signal(SIGTERM);
  CHECK(daemon.Wait() == 0);
  CHECK(machine.Ready("standalone").empty());
  CHECK(Ctl(machine, "standalone", {"list"}) == 4);
}

TEST_CASE("a second daemon on the same sockets is refused, the first goes on") {
  Machine machine;
  ChildProcess first(machine.Command("standalone"));
  CHECK_THAT(first.ReadLine(), Contains("ready"));
  ChildProcess second(machine.Command("standalone"));
  CHECK(second.Wait() == 1);
  CHECK_THAT(second.ReadErrors(),
             Contains("a ckptd is already running here: process " + std::to_string(first.pid())));
  CHECK(HealthOf("unix:" + (machine.folder / "standalone/node.grpc")) == "SERVING");
}

TEST_CASE("what a killed daemon left behind does not hinder the next") {
  Machine machine;
  {
    ChildProcess killed(machine.Command("standalone"));
    CHECK_THAT(killed.ReadLine(), Contains("ready"));
    killed.Signal(SIGKILL);
    CHECK(killed.Wait() == 128 + SIGKILL);
  }
  CHECK(std::filesystem::exists(machine.folder / "standalone/node.grpc"));
  ChildProcess next(machine.Command("standalone"));
  CHECK_THAT(next.ReadLine(), Contains("ready"));
  CHECK(HealthOf("unix:" + (machine.folder / "standalone/node.grpc")) == "SERVING");
  next.Signal(SIGINT);
  CHECK(next.Wait() == 0);
}

TEST_CASE("several stop signals are one") {
  Machine machine;
  ChildProcess daemon(machine.Command("standalone"));
  CHECK_THAT(daemon.ReadLine(), Contains("ready"));
  for (const int signal : {SIGTERM, SIGINT, SIGTERM}) daemon.Signal(signal);
  CHECK(daemon.Wait() == 0);
}

TEST_CASE("wrong options end with 2, all of them named, nothing started") {
  Machine machine;
  ChildProcess daemon(machine.Command("standalone", {"--arena-byte=1", "--slab-bytes=x"}));
  CHECK(daemon.Wait() == 2);
  CHECK_THAT(daemon.ReadErrors(),
             Contains("did you mean --arena-bytes?") && Contains("--slab-bytes: \"x\" is no size"));
  CHECK_FALSE(std::filesystem::exists(machine.folder / "state"));
}

TEST_CASE("a node and a coordinator find each other over TCP with the cluster's secret") {
  Machine machine;
  const std::string secret = machine.folder / "secret";
  ChildProcess coordinator(
      machine.Command("coordinator", {"--listen=127.0.0.1:0", "--cluster-secret-file=" + secret}));
  CHECK_THAT(coordinator.ReadLine(), Contains("ckptd coordinator ready"));
  const std::string address = Field(machine.Ready("coordinator"), "coordinator_address");
  CHECK(HealthOf(address) == "SERVING");

  ChildProcess node(machine.Command(
      "node", {"--coordinator=" + address, "--node-name=n0", "--cluster-secret-file=" + secret}));
  CHECK_THAT(node.ReadLine(), Contains("ckptd node ready"));
  std::string output;
  CHECK(Ctl(machine, "node", {"list"}, &output) == 0);
  CHECK(output == "no checkpoints\n");
  node.Signal(SIGTERM);
  CHECK(node.Wait() == 0);

  WriteAll(machine.folder / "other", std::string(64, 'x'));
  ::chmod((machine.folder / "other").c_str(), 0600);
  ChildProcess stranger(
      machine.Command("node", {"--coordinator=" + address, "--node-name=n1",
                               "--cluster-secret-file=" + (machine.folder / "other")}));
  CHECK_THAT(stranger.ReadLine(), Contains("ckptd node ready"));
  CHECK(Ctl(machine, "node", {"list"}) == 5);

  stranger.Signal(SIGTERM);
  coordinator.Signal(SIGTERM);
  CHECK(stranger.Wait() == 0);
  CHECK(coordinator.Wait() == 0);
}

}  // namespace
}  // namespace ckptd
