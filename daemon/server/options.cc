#include "daemon/server/options.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/runtime/flags.h"
#include "daemon/runtime/quantity.h"
#include "proto/rpc/wire.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kLargestSlabBytes = kGiB;  // io_uring's limit for a registered buffer
constexpr std::string_view kOff = "off";

// The options as text, before what depends on several of them is checked.
struct Raw {
  ServerOptions options;
  std::vector<std::string> stores;
  std::string coordinator;
  std::string listen;
  std::string metrics_listen;
  std::string log_format = "text";
  std::string memory_restore = "on";
  bool insecure_listen_beyond_loopback = false;
};

std::string DefaultStateDir(const Machine& machine) {
  return machine.user_id == 0 ? "/var/lib/ckptd" : machine.home + "/.local/state/ckptd";
}

std::string DefaultSocketDir(const Machine& machine) {
  if (machine.user_id == 0) return "/run/ckptd";
  return machine.runtime_dir.empty() ? "" : machine.runtime_dir + "/ckptd";
}

uint64_t DefaultArenaBytes(uint64_t memory_bytes) {
  const uint64_t quarter = std::min(memory_bytes / 4, 8 * kGiB);
  return std::max(quarter - quarter % (64 * kMiB), 64 * kMiB);
}

Raw Defaults(Role role, const Machine& machine) {
  Raw raw;
  raw.options.role = role;
  raw.options.state_dir = DefaultStateDir(machine);
  raw.options.socket_dir = DefaultSocketDir(machine);
  raw.options.node_name = machine.host_name.substr(0, machine.host_name.find('.'));
  raw.options.arena_bytes = DefaultArenaBytes(machine.memory_bytes);
  raw.metrics_listen = role == Role::kCoordinator ? "127.0.0.1:9465" : "127.0.0.1:9464";
  return raw;
}

absl::Status CheckAbsolute(std::string_view path) {
  if (path.starts_with("/")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", std::string(path), "\" is not an absolute path"));
}

absl::Status CheckStore(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", std::string(text), "\" has no name; write it as NAME=/absolute/folder"));
  }
  if (absl::Status name = ValidateJobName(text.substr(0, equals)); !name.ok()) return name;
  return CheckAbsolute(text.substr(equals + 1));
}

absl::Status CheckAddress(std::string_view text) { return ParseAddress(text).status(); }

absl::Status CheckAddressOrOff(std::string_view text) {
  return text == kOff ? absl::OkStatus() : CheckAddress(text);
}

void DeclareCommon(Raw& raw, FlagSet& flags) {
  ServerOptions& options = raw.options;
  flags.Text("state-dir", "PATH", "where the daemon keeps what must survive a restart",
             options.state_dir, CheckAbsolute);
  flags.Text("socket-dir", "PATH", "folder of the daemon's sockets and lock", options.socket_dir,
             CheckAbsolute);
  flags.Repeated("store", "NAME=PATH", "a place to keep checkpoints", raw.stores, CheckStore);
  flags.Text("metrics-listen", "HOST:PORT|off", "where /metrics is served; port 0: any",
             raw.metrics_listen, CheckAddressOrOff);
  flags.Switch("insecure-listen-beyond-loopback",
               "allow listening where other machines reach it; traffic is not encrypted",
               raw.insecure_listen_beyond_loopback);
  flags.Duration("drain-timeout", "after SIGTERM: how long what is staged may take to be durable",
                 {absl::ZeroDuration(), absl::Hours(24)}, options.drain_timeout);
  flags.Choice("log-format", {"text", "json"}, "form of the log lines on stderr", raw.log_format);
  flags.Text("ready-file", "PATH", "written, as JSON, when the daemon answers", options.ready_file,
             CheckAbsolute);
}

void DeclareNode(Raw& raw, FlagSet& flags) {
  ServerOptions& options = raw.options;
  flags.Text("node-name", "NAME", "this machine's name within the cluster", options.node_name,
             [](std::string_view name) { return ValidateNodeName(name); });
  flags.Bytes("arena-bytes", "staging memory for checkpoints on their way to storage",
              {kMiB, uint64_t{1} << 50}, options.arena_bytes);
  flags.Bytes("slab-bytes",
              "unit in which the arena is given to jobs; 0: an eighth of it, at most 1GiB",
              {0, kLargestSlabBytes}, options.slab_bytes);
  flags.Choice("memory-restore", {"on", std::string(kOff)},
               "loads take what the arena still holds of a save from there, not from storage",
               raw.memory_restore);
}

void DeclareSecret(Raw& raw, FlagSet& flags) {
  flags.Text("cluster-secret-file", "PATH",
             "secret shared by nodes and coordinator; required with TCP, made if missing",
             raw.options.cluster_secret_file, CheckAbsolute);
}

FlagSet Declare(Raw& raw) {
  FlagSet flags;
  DeclareCommon(raw, flags);
  const Role role = raw.options.role;
  if (role != Role::kCoordinator) DeclareNode(raw, flags);
  if (role == Role::kNode) {
    flags.Text("coordinator", "ADDRESS", "the coordinator: unix:PATH or HOST:PORT", raw.coordinator,
               CheckAddress);
  }
  if (role != Role::kNode) {
    flags.Duration("orphan-age", "files of failed saves are removed when this old",
                   {absl::ZeroDuration(), absl::Hours(24 * 365)}, raw.options.orphan_age);
  }
  if (role == Role::kCoordinator) {
    flags.Text("listen", "ADDRESS", "where nodes connect: unix:PATH or HOST:PORT", raw.listen,
               CheckAddress);
  }
  if (role != Role::kStandalone) DeclareSecret(raw, flags);
  return flags;
}

// An address that was checked when it was parsed.
std::optional<Address> Checked(const std::string& text) {
  if (text.empty() || text == kOff) return std::nullopt;
  absl::StatusOr<Address> address = ParseAddress(text);
  return address.ok() ? std::optional<Address>(*std::move(address)) : std::nullopt;
}

void CheckListening(std::string_view flag, const std::optional<Address>& address, bool allowed,
                    std::vector<std::string>& problems) {
  if (!address.has_value() || address->is_loopback() || allowed) return;
  problems.push_back(absl::StrCat(
      "--", std::string(flag), ": ", address->ToString(),
      " can be reached from other machines and traffic there is not encrypted; listen on "
      "127.0.0.1, or give --insecure-listen-beyond-loopback too"));
}

std::string DefaultSecretFile(const ServerOptions& options) {
  return options.state_dir + "/cluster-secret";
}

void ResolveStores(Raw& raw, std::vector<std::string>& problems) {
  ServerOptions& options = raw.options;
  for (const std::string& store : raw.stores) {
    const size_t equals = store.find('=');
    const std::string name = store.substr(0, equals);
    if (!options.stores.emplace(name, store.substr(equals + 1)).second) {
      problems.push_back(absl::StrCat("--store: \"", name, "\" is given twice"));
    }
  }
  if (!options.stores.empty()) return;
  if (options.role == Role::kStandalone) {
    options.stores.emplace("default", options.state_dir + "/checkpoints");
  } else {
    problems.push_back(absl::StrCat("--store is required by ", std::string(RoleName(options.role)),
                                    ": NAME=PATH, alike on every node and the coordinator"));
  }
}

void ResolveAddresses(Raw& raw, std::vector<std::string>& problems) {
  ServerOptions& options = raw.options;
  options.metrics_listen = Checked(raw.metrics_listen);
  options.coordinator = Checked(raw.coordinator);
  options.listen = Checked(raw.listen);
  if (options.metrics_listen.has_value() && options.metrics_listen->is_unix()) {
    problems.push_back("--metrics-listen must be HOST:PORT or off: a scraper needs a port");
  }
  if (options.role == Role::kNode && !options.coordinator.has_value()) {
    problems.push_back("--coordinator is required by node: unix:PATH or HOST:PORT");
  }
  if (options.role == Role::kCoordinator && !options.listen.has_value()) {
    options.listen = Address{.unix_path = options.socket_dir + "/coordinator.grpc"};
  }
  const bool allowed = raw.insecure_listen_beyond_loopback;
  CheckListening("metrics-listen", options.metrics_listen, allowed, problems);
  CheckListening("listen", options.listen, allowed, problems);
}

void ResolveSecret(ServerOptions& options, std::vector<std::string>& problems) {
  const std::optional<Address>& peer =
      options.role == Role::kNode ? options.coordinator : options.listen;
  const bool over_tcp = peer.has_value() && !peer->is_unix();
  if (!over_tcp || !options.cluster_secret_file.empty()) return;
  if (options.role == Role::kCoordinator) {
    options.cluster_secret_file = DefaultSecretFile(options);
  } else {
    problems.push_back(
        "--cluster-secret-file is required with a coordinator on TCP: a copy of the "
        "coordinator's, by default <its state-dir>/cluster-secret");
  }
}

void ResolveSizes(const ServerOptions& options, std::vector<std::string>& problems) {
  if (!options.runs_node()) return;
  if (options.slab_bytes > options.arena_bytes) {
    problems.push_back(absl::StrCat("--slab-bytes: ", ExactByteSize(options.slab_bytes),
                                    " is more than --arena-bytes, ",
                                    ExactByteSize(options.arena_bytes)));
  }
  if (options.slab_bytes % kMiB != 0) {
    problems.push_back(absl::StrCat("--slab-bytes: ", ExactByteSize(options.slab_bytes),
                                    " is no multiple of 1MiB"));
  }
  if (absl::Status status = ValidateNodeName(options.node_name); !status.ok()) {
    problems.push_back(absl::StrCat("--node-name: ", status.message()));
  }
}

void ResolveSockets(const ServerOptions& options, std::vector<std::string>& problems) {
  if (options.socket_dir.empty()) {
    problems.push_back("--socket-dir is required: $XDG_RUNTIME_DIR is not set");
    return;
  }
  if (options.runs_node()) {
    absl::Status status = CheckSocketPath(options.node_handle_socket());
    if (!status.ok()) problems.push_back(absl::StrCat("--socket-dir: ", status.message()));
  } else if (options.listen.has_value() && options.listen->is_unix()) {
    absl::Status status = CheckSocketPath(options.listen->unix_path);
    if (!status.ok()) problems.push_back(absl::StrCat("--listen: ", status.message()));
  }
}

}  // namespace

std::string ServerOptions::node_grpc_socket() const {
  return absl::StrCat(socket_dir, "/", kGrpcSocketName);
}
std::string ServerOptions::node_handle_socket() const {
  return absl::StrCat(socket_dir, "/", kHandleSocketName);
}
std::string ServerOptions::lock_file() const {
  // A node and a coordinator may share a folder; a standalone is both.
  return absl::StrCat(socket_dir, role == Role::kCoordinator ? "/coordinator" : "/node", ".lock");
}

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kStandalone:
      return "standalone";
    case Role::kNode:
      return "node";
    case Role::kCoordinator:
      return "coordinator";
  }
  return "?";
}

std::optional<Role> ParseRole(std::string_view name) {
  for (const Role role : {Role::kStandalone, Role::kNode, Role::kCoordinator}) {
    if (RoleName(role) == name) return role;
  }
  return std::nullopt;
}

absl::StatusOr<ServerOptions> ParseServerOptions(Role role,
                                                 const std::vector<std::string>& arguments,
                                                 const Machine& machine) {
  Raw raw = Defaults(role, machine);
  FlagSet flags = Declare(raw);
  absl::StatusOr<std::vector<std::string>> operands = flags.Parse(arguments);
  std::vector<std::string> problems;
  if (operands.ok()) {
    for (const std::string& operand : *operands) {
      problems.push_back(absl::StrCat("\"", operand, "\" is not expected here"));
    }
  } else {
    problems.push_back(std::string(operands.status().message()));
  }
  raw.options.memory_restore = raw.memory_restore != kOff;
  raw.options.log_format = raw.log_format == "json" ? LogFormat::kJson : LogFormat::kText;
  ResolveStores(raw, problems);
  ResolveAddresses(raw, problems);
  ResolveSecret(raw.options, problems);
  ResolveSizes(raw.options, problems);
  ResolveSockets(raw.options, problems);
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return std::move(raw.options);
}

std::string ServerHelp(Role role, const Machine& machine) {
  Raw raw = Defaults(role, machine);
  return Declare(raw).Help();
}

}  // namespace ckptd
