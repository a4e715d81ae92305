// ckptctl's command line as a value.
#ifndef CKPTD_CLIENT_CTL_COMMAND_LINE_H_
#define CKPTD_CLIENT_CTL_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ckptd {

enum class Action { kHelp, kVersion, kList, kShow, kVerify, kRemove, kStatus, kPause, kResume };

struct CommandLine {
  Action action = Action::kHelp;
  std::string job;                     // list: empty for all
  std::optional<uint64_t> step;        // show, verify: nullopt for "latest"
  std::optional<uint64_t> after_step;  // rm --after
  std::string folder;                  // verify --folder
  std::string socket_dir;
  bool json = false;
  bool yes = false;
};

// INVALID_ARGUMENT lists all that is wrong, one problem a line.
absl::StatusOr<CommandLine> ParseCommandLine(const std::vector<std::string>& arguments,
                                             const std::string& default_socket_dir);
std::string Usage(const std::string& default_socket_dir);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_COMMAND_LINE_H_
