#include "daemon/server/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace ckptd {
namespace {

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Control group v2, as seen from inside a container; "max" where there is no limit.
uint64_t ControlGroupLimit(uint64_t otherwise) {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  uint64_t limit = 0;
  return file >> limit ? limit : otherwise;
}

uint64_t MemoryBytes() {
  const uint64_t physical = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(physical, ControlGroupLimit(physical));
}

}  // namespace

Machine ReadMachine() {
  utsname names = {};
  const bool named = ::uname(&names) == 0;
  return {.user_id = ::getuid(),
          .home = Environment("HOME"),
          .runtime_dir = Environment("XDG_RUNTIME_DIR"),
          .host_name = named ? names.nodename : "",
          .memory_bytes = MemoryBytes()};
}

}  // namespace ckptd
