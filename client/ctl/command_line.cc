#include "client/ctl/command_line.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/runtime/flags.h"
#include "storage/format/checkpoint_path.h"

namespace ckptd {
namespace {

struct ActionSyntax {
  std::string name;
  Action action;
  size_t least_operands;
  size_t most_operands;
  std::string operands;
};

const std::vector<ActionSyntax>& Actions() {
  static const auto* actions = new std::vector<ActionSyntax>{
      {"list", Action::kList, 0, 1, "[JOB]"},
      {"show", Action::kShow, 2, 2, "JOB STEP|latest"},
      {"verify", Action::kVerify, 0, 2, "JOB STEP|latest, or --folder PATH"},
      {"rm", Action::kRemove, 1, 2, "JOB STEP, or JOB --after STEP"},
      {"status", Action::kStatus, 0, 0, ""},
      {"pause", Action::kPause, 0, 0, ""},
      {"resume", Action::kResume, 0, 0, ""},
  };
  return *actions;
}

struct Raw {
  CommandLine line;
  std::string after;
  bool help = false;
  bool version = false;
};

FlagSet Declare(Raw& raw) {
  FlagSet flags;
  flags.Text("socket-dir", "PATH", "folder of the daemon's sockets", raw.line.socket_dir);
  flags.Switch("json", "one JSON object on stdout, for programs", raw.line.json);
  flags.Text("after", "STEP", "rm: every checkpoint above this step", raw.after);
  flags.Switch("yes", "rm: do not ask", raw.line.yes);
  flags.Text("folder", "PATH", "verify: a checkpoint's folder; needs no daemon", raw.line.folder);
  flags.Switch("help", "this text", raw.help);
  flags.Switch("version", "the version of this program", raw.version);
  return flags;
}

std::optional<uint64_t> ParseStep(const std::string& text, std::vector<std::string>& problems) {
  uint64_t step = 0;
  if (!text.empty() && text[0] != '-' && absl::SimpleAtoi(text, &step)) return step;
  problems.push_back(absl::StrCat("\"", text, "\" is no step; give a number",
                                  " (show and verify also take latest)"));
  return std::nullopt;
}

void TakeJob(const std::string& job, CommandLine& line, std::vector<std::string>& problems) {
  line.job = job;
  if (absl::Status status = ValidateJobName(job); !status.ok()) {
    problems.push_back(std::string(status.message()));
  }
}

void TakeSelected(const std::vector<std::string>& operands, CommandLine& line,
                  std::vector<std::string>& problems) {
  TakeJob(operands[0], line, problems);
  if (operands[1] != "latest") line.step = ParseStep(operands[1], problems);
}

void TakeVerify(const std::vector<std::string>& operands, CommandLine& line,
                std::vector<std::string>& problems) {
  if (line.folder.empty() == (operands.size() == 2)) {
    if (!operands.empty()) TakeSelected(operands, line, problems);
  } else {
    problems.push_back("verify takes either JOB STEP|latest or --folder PATH");
  }
}

void TakeRemove(const std::vector<std::string>& operands, const std::string& after,
                CommandLine& line, std::vector<std::string>& problems) {
  TakeJob(operands[0], line, problems);
  if ((operands.size() == 2) == !after.empty()) {
    problems.push_back("rm takes either one STEP or --after STEP");
  } else if (after.empty()) {
    line.step = ParseStep(operands[1], problems);
  } else {
    line.after_step = ParseStep(after, problems);
  }
}

const ActionSyntax* FindAction(const std::string& word, std::vector<std::string>& problems) {
  std::vector<std::string> names;
  for (const ActionSyntax& syntax : Actions()) {
    if (syntax.name == word) return &syntax;
    names.push_back(syntax.name);
  }
  const std::string nearest = NearestName(word, names);
  problems.push_back(
      absl::StrCat("\"", word, "\" is no command",
                   nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  return nullptr;
}

void TakeOperands(const ActionSyntax& syntax, const std::vector<std::string>& operands, Raw& raw,
                  std::vector<std::string>& problems) {
  raw.line.action = syntax.action;
  if (operands.size() < syntax.least_operands || operands.size() > syntax.most_operands) {
    problems.push_back(absl::StrCat(syntax.name, " takes ",
                                    syntax.operands.empty() ? "no operands" : syntax.operands));
    return;
  }
  switch (syntax.action) {
    case Action::kList:
      if (!operands.empty()) TakeJob(operands[0], raw.line, problems);
      break;
    case Action::kShow:
      TakeSelected(operands, raw.line, problems);
      break;
    case Action::kVerify:
      TakeVerify(operands, raw.line, problems);
      break;
    case Action::kRemove:
      TakeRemove(operands, raw.after, raw.line, problems);
      break;
    default:
      break;
  }
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                             const std::string& default_socket_dir) {
  Raw raw;
  raw.line.socket_dir = default_socket_dir;
  FlagSet flags = Declare(raw);
  absl::StatusOr<std::vector<std::string>> operands = flags.Parse(arguments);
  std::vector<std::string> problems;
  if (!operands.ok()) {
    problems.push_back(std::string(operands.status().message()));
  } else if (raw.help || raw.version) {
    raw.line.action = raw.help ? Action::kHelp : Action::kVersion;
  } else if (operands->empty()) {
    problems.push_back("no command given; see ckptctl --help");
  } else if (const ActionSyntax* syntax = FindAction(operands->front(), problems)) {
    operands->erase(operands->begin());
    TakeOperands(*syntax, *operands, raw, problems);
  }
  if (!problems.empty()) return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
  return raw.line;
}

std::string Usage(const std::string& default_socket_dir) {
  Raw raw;
  raw.line.socket_dir = default_socket_dir;
  return absl::StrCat(R"(ckptctl shows and keeps the checkpoints of a ckptd daemon.

  ckptctl list [JOB]                committed checkpoints
  ckptctl show JOB STEP|latest      one checkpoint: its tensors, values and files
  ckptctl verify JOB STEP|latest    reads all of it from storage and checks every checksum
  ckptctl verify --folder PATH      the same for <store>/<job>/step-<step>, without a daemon
  ckptctl rm JOB STEP               removes one checkpoint; asks first
  ckptctl rm JOB --after STEP       removes an abandoned branch: every step above STEP
  ckptctl status                    this node: arena, sessions, saves in flight
  ckptctl pause | resume            stops or resumes writing to storage on this node

Options:
)",
                      Declare(raw).Help(), R"(
Exit status: 0 ok; 1 verify found damage; 2 wrong command line, or not confirmed;
3 no such checkpoint; 4 no daemon answers; 5 not allowed; 6 anything else.
)");
}

}  // namespace ckptd
