// ckptctl: shows and keeps the checkpoints of a ckptd daemon.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "client/ctl/command_line.h"
#include "client/ctl/commands.h"
#include "client/ctl/exit_code.h"
#include "client/ctl/progress_bar.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/version.h"
#include "storage/file_system/posix_file_system.h"

namespace ckptd {
namespace {

// The daemon's own default.
std::string DefaultSocketDir() {
  if (::getuid() == 0) return "/run/ckptd";
  const char* runtime_dir = std::getenv("XDG_RUNTIME_DIR");
  return runtime_dir == nullptr ? "/run/ckptd" : std::string(runtime_dir) + "/ckptd";
}

int Fail(const absl::Status& status) {
  for (absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    std::fprintf(stderr, "ckptctl: %.*s\n", static_cast<int>(line.size()), line.data());
  }
  return static_cast<int>(ExitCodeOf(status));
}

absl::StatusOr<bool> Confirm(const std::string& question) {
  if (::isatty(STDIN_FILENO) != 1) {
    return absl::InvalidArgumentError("rm asks first, and stdin is no terminal; give --yes");
  }
  std::fputs(question.c_str(), stderr);
  char answer[16] = {};
  if (std::fgets(answer, sizeof(answer), stdin) == nullptr) return false;
  const std::string word = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  return word == "y" || word == "yes";
}

int Main(const std::vector<std::string>& arguments) {
  absl::StatusOr<CommandLine> line = ParseCommandLine(arguments, DefaultSocketDir());
  if (!line.ok()) return Fail(line.status());
  if (line->action == Action::kHelp)
    return std::fputs(Usage(DefaultSocketDir()).c_str(), stdout) < 0;
  if (line->action == Action::kVersion) return std::printf("ckptctl %s\n", Version().c_str()) < 0;

  std::unique_ptr<FileSystem> file_system = MakePosixFileSystem();
  std::optional<ProgressBar> bar(std::in_place);
  const CommandContext context{
      .connect = [&] { return AdminConnection::Open(line->socket_dir); },
      .file_system = *file_system,
      .print =
          [&bar](const std::string& text) {
            bar.reset();  // the line is free again
            std::fputs(text.c_str(), stdout);
          },
      .confirm = Confirm,
      .progress = [&bar](uint64_t done, uint64_t total) { bar->Show(done, total); },
      .now = SystemClock().Now()};
  absl::StatusOr<ExitCode> result = RunCommand(*line, context);
  bar.reset();
  return result.ok() ? static_cast<int>(*result) : Fail(result.status());
}

}  // namespace
}  // namespace ckptd

int main(int argc, char** argv) {
  return ckptd::Main(std::vector<std::string>(argv + 1, argv + argc));
}
