// What a caller hands over to save.
#ifndef CKPTD_CLIENT_CPP_SAVE_REQUEST_H_
#define CKPTD_CLIENT_CPP_SAVE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/layout.h"
#include "storage/layout/box_copy.h"

namespace ckptd {

// Told about the deferred part of a snapshot, on the copy thread.
class SnapshotObserver {
 public:
  virtual ~SnapshotObserver() = default;
  // The caller's memory of that shard is read next. May take its time: it paces the snapshot.
  virtual void BeforeDeferredCopy(size_t shard) = 0;
  // The caller's memory will not be read any more. Called exactly once for each
  // save that was started, before the node is told; an error fails the save.
  virtual absl::Status AfterLastCopy() = 0;
};

struct SaveRequest {
  std::string job;
  uint64_t step = 0;
  std::shared_ptr<const ClientLayout> layout;

  // Where the layout's shards and small tensors are, in its order. The memory of
  // shards marked deferred must stay as it is until AfterLastCopy(); all other
  // memory may change as soon as the save was started.
  std::vector<StridedMemory> shards;
  std::vector<bool> deferred;
  std::vector<StridedMemory> small_tensors;
  std::vector<std::span<const std::byte>> values;

  bool overwrite = false;
  std::map<std::string, std::string> tags;
  absl::Duration timeout = absl::Minutes(30);  // for the whole save, until durable
  absl::Time started;                          // when the training loop began to wait
  std::shared_ptr<SnapshotObserver> observer;  // never null
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_SAVE_REQUEST_H_
