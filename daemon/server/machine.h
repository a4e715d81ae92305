// What the defaults depend on: facts of the machine and the user, read once at
// start so that everything after is a function of values.
#ifndef CKPTD_DAEMON_SERVER_MACHINE_H_
#define CKPTD_DAEMON_SERVER_MACHINE_H_

#include <cstdint>
#include <string>

namespace ckptd {

struct Machine {
  uint32_t user_id = 0;
  std::string home;         // $HOME; may be empty
  std::string runtime_dir;  // $XDG_RUNTIME_DIR; may be empty
  std::string host_name;
  uint64_t memory_bytes = 0;  // of the machine, or of this control group if it has less
};

Machine ReadMachine();

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_MACHINE_H_
