// ckptd: the node daemon, the coordinator, or both in one process.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/runtime/flags.h"
#include "daemon/runtime/version.h"
#include "daemon/server/daemon.h"
#include "daemon/server/grpc_server.h"
#include "daemon/server/options.h"
#include "daemon/server/stop_signal.h"
#include "prometheus/registry.h"
#include "storage/file_system/posix_file_system.h"

namespace ckptd {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr char kUsage[] =
    R"(ckptd saves and loads checkpoints of large-model training.

  ckptd standalone [options]    node and coordinator in one process; needs no option
  ckptd node [options]          the daemon beside the trainers, one per machine
  ckptd coordinator [options]   one per cluster
  ckptd --version | --help      `ckptd standalone --help` shows that role's options

SIGTERM and SIGINT finish what is staged and end the daemon.
Exit status: 0 stopped, nothing lost; 1 could not start, or something staged was not
durable within --drain-timeout; 2 wrong options.
)";

void PrintProblems(absl::string_view message) {
  for (absl::string_view line : absl::StrSplit(message, '\n')) {
    std::fprintf(stderr, "ckptd: %.*s\n", static_cast<int>(line.size()), line.data());
  }
}

// "ckptd standalone ready: key=value ...", for people and scripts that read stdout.
void PrintReady(const ReadyReport& report) {
  std::string line = absl::StrCat("ckptd ", report.role, " ready: version=", report.version);
  const auto add = [&line](absl::string_view key, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&line, " ", key, "=", value);
  };
  add("node", report.node);
  add("grpc", report.grpc_socket);
  add("handles", report.handle_socket);
  add("coordinator", report.coordinator_address);
  if (report.metrics_port != 0) absl::StrAppend(&line, " metrics_port=", report.metrics_port);
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void WarnOfOpenListening(const ServerOptions& options, Log& log) {
  for (const std::optional<Address>& address : {options.listen, options.metrics_listen}) {
    if (!address.has_value() || address->is_loopback()) continue;
    log.Warning(
        "LISTENING BEYOND LOOPBACK WITHOUT ENCRYPTION, as "
        "--insecure-listen-beyond-loopback asked for",
        {{"address", address->ToString()}});
  }
}

int Serve(Daemon& daemon, const ServerOptions& options, StopSignal& stop, Log& log) {
  if (!options.ready_file.empty()) {
    if (absl::Status status = WriteReadyFile(options.ready_file, daemon.report()); !status.ok()) {
      PrintProblems(status.message());
      return kExitFailed;
    }
  }
  PrintReady(daemon.report());

  const int signal = stop.Wait();
  log.Info("stopping", {{"signal", signal == SIGINT ? "SIGINT" : "SIGTERM"}});
  const absl::Status stopped = daemon.Stop();
  if (!options.ready_file.empty()) ::unlink(options.ready_file.c_str());
  if (!stopped.ok()) {
    log.Error("stopped with something unfinished", {{"reason", stopped.message()}});
    return kExitFailed;
  }
  log.Info("stopped");
  return 0;
}

int Run(const ServerOptions& options, StopSignal& stop) {
  ::umask(0022);
  EnableHealthAndReflection();
  DescriptorLog log(STDERR_FILENO, options.log_format, SystemClock());
  ThreadAlarms alarms(SystemClock());
  std::unique_ptr<FileSystem> file_system = MakePosixFileSystem();
  Environment environment{.file_system = *file_system,
                          .clock = SystemClock(),
                          .alarms = alarms,
                          .log = log,
                          .registry = std::make_shared<prometheus::Registry>()};
  WarnOfOpenListening(options, log);
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(options, environment);
  if (!daemon.ok()) {
    PrintProblems(daemon.status().message());
    return kExitFailed;
  }
  return Serve(**daemon, options, stop, log);
}

int UnknownRole(const std::string& word) {
  const std::string nearest = NearestName(word, {"standalone", "node", "coordinator"});
  PrintProblems(absl::StrCat("\"", word, "\" is no role",
                             nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?"),
                             "; see ckptd --help"));
  return kExitUsage;
}

int Main(const std::vector<std::string>& arguments) {
  // First of all, so that every thread that is started later has them blocked.
  absl::StatusOr<StopSignal> stop = StopSignal::Install();
  if (!stop.ok()) {
    PrintProblems(stop.status().message());
    return kExitFailed;
  }
  if (arguments.empty()) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  if (arguments[0] == "--version") return std::printf("ckptd %s\n", Version().c_str()) < 0;
  if (arguments[0] == "--help" || arguments[0] == "-h") return std::fputs(kUsage, stdout) < 0;
  const std::optional<Role> role = ParseRole(arguments[0]);
  if (!role.has_value()) return UnknownRole(arguments[0]);

  const Machine machine = ReadMachine();
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  for (const std::string& argument : rest) {
    if (argument != "--help" && argument != "-h") continue;
    std::printf("Options of ckptd %s:\n%s", arguments[0].c_str(),
                ServerHelp(*role, machine).c_str());
    return 0;
  }
  absl::StatusOr<ServerOptions> options = ParseServerOptions(*role, rest, machine);
  if (!options.ok()) {
    PrintProblems(options.status().message());
    return kExitUsage;
  }
  return Run(*options, *stop);
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  return ckptd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
