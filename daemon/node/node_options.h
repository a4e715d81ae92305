// What a node daemon is told at its start, and the world that it lives in.
#ifndef CKPTD_DAEMON_NODE_NODE_OPTIONS_H_
#define CKPTD_DAEMON_NODE_NODE_OPTIONS_H_

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "daemon/node/coordinator_client.h"
#include "daemon/node/probe.h"
#include "daemon/runtime/alarms.h"
#include "daemon/runtime/clock.h"
#include "storage/file_system/file_system.h"

namespace ckptd {

struct NodeOptions {
  std::string node_name;                      // ValidateNodeName's rule; unique in the cluster
  std::string socket_directory;               // exists; holds node.grpc and node.handles
  std::string version;                        // told to clients
  std::map<std::string, std::string> stores;  // name -> absolute path of an existing folder

  // Staging memory, taken and touched at the start. Rounded down to 4 KiB.
  uint64_t arena_bytes = uint64_t{4} << 30;
  // A slab serves one job at a time. 0: an eighth of the arena, at most 1 GiB.
  uint64_t slab_bytes = 0;
  int touch_threads = 4;

  int persist_threads = 4;
  int read_threads = 4;
  // A load holds at most load_windows x load_window_bytes of the arena.
  uint64_t load_window_bytes = uint64_t{16} << 20;
  int load_windows = 4;
  // What was saved stays in the arena until its room is needed, for loads that follow soon.
  bool keep_images = true;
  // O_DIRECT for data files, where the store can.
  bool direct_io = true;

  size_t session_limit = 4096;
  size_t session_limit_per_user = 1024;
  // Besides root, the user who may pause persisting.
  uint32_t own_user_id = ::geteuid();
};

// All must outlive the node.
struct NodeEnvironment {
  FileSystem& file_system;
  const Clock& clock;
  Alarms& alarms;
  CoordinatorClient& coordinator;
  NodeProbe& probe;
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_NODE_OPTIONS_H_
