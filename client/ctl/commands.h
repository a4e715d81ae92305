// The commands of ckptctl, each from command line to exit status.
#ifndef CKPTD_CLIENT_CTL_COMMANDS_H_
#define CKPTD_CLIENT_CTL_COMMANDS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/ctl/admin_connection.h"
#include "client/ctl/command_line.h"
#include "client/ctl/exit_code.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

// What the commands need of the outside; tests give their own.
struct CommandContext {
  std::function<absl::StatusOr<std::unique_ptr<AdminConnection>>()> connect;
  FileSystem& file_system;
  std::function<void(const std::string& text)> print;  // to stdout
  // Asks on the terminal; INVALID_ARGUMENT where there is none.
  std::function<absl::StatusOr<bool>(const std::string& question)> confirm;
  std::function<void(uint64_t done, uint64_t total)> progress;
  absl::Time now;
};

// An error is what stderr should say; its code gives the exit status (ExitCodeOf).
absl::StatusOr<ExitCode> RunCommand(const CommandLine& line, const CommandContext& context);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_COMMANDS_H_
