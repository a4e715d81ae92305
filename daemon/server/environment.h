// What both daemons stand on, made once by main and alive until the end.
#ifndef CKPTD_DAEMON_SERVER_ENVIRONMENT_H_
#define CKPTD_DAEMON_SERVER_ENVIRONMENT_H_

#include <memory>

#include "daemon/runtime/alarms.h"
#include "daemon/runtime/clock.h"
#include "daemon/runtime/log.h"
#include "storage/file_system/file_system.h"

namespace prometheus {
class Registry;
}

namespace ckptd {

struct Environment {
  FileSystem& file_system;
  const Clock& clock;
  Alarms& alarms;
  Log& log;
  std::shared_ptr<prometheus::Registry> registry;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_SERVER_ENVIRONMENT_H_
