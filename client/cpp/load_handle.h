// A load that was planned: what will come, and scattering it into memory.
#ifndef CKPTD_CLIENT_CPP_LOAD_HANDLE_H_
#define CKPTD_CLIENT_CPP_LOAD_HANDLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ckptd/v1/node.pb.h"
#include "client/cpp/layout.h"
#include "client/cpp/node_connection.h"
#include "client/cpp/worker_pool.h"
#include "storage/layout/box_copy.h"

namespace ckptd {

struct LoadRequest {
  std::string job;
  v1::CheckpointSelector selector;
  std::shared_ptr<const ClientLayout> layout;  // without small tensors
  v1::LoadOptions options;
  absl::Duration timeout = absl::Minutes(30);
};

// Where a shard's bytes go. `memory.data` is null for a shard that is not wanted
// any more; its bytes are then dropped.
struct LoadTarget {
  StridedMemory memory;
  v1::DataType data_type = v1::DATA_TYPE_UNSPECIFIED;  // the saved one, where it differs
};

// Not thread-safe. The node's windows are given back with the handle at the latest.
class LoadHandle {
 public:
  LoadHandle(std::shared_ptr<NodeConnection> connection, LoadRequest request,
             v1::BeginLoadResponse plan, absl::Time deadline);
  ~LoadHandle();

  LoadHandle(const LoadHandle&) = delete;
  LoadHandle& operator=(const LoadHandle&) = delete;

  const v1::BeginLoadResponse& plan() const { return plan_; }

  // Copies every byte of the plan to its place; `targets` are in the layout's
  // order. After an error the targets hold some of the old and some of the new.
  // To be called once.
  [[nodiscard]] absl::Status Run(std::span<const LoadTarget> targets);

  // Of plan().small(index), whole after a successful Run().
  std::span<const std::byte> small(size_t index) const { return small_[index]; }

 private:
  absl::Status ReceiveAll(std::span<const LoadTarget> targets);
  absl::Status PrepareSmall();
  absl::Status Scatter(const v1::Window& window, std::span<const LoadTarget> targets);
  absl::Status CopySmall(const v1::Window& window, std::span<const std::byte> bytes,
                         uint64_t element_bytes);
  // Once: tells the node, which answers an error unless the windows were ours until now.
  [[nodiscard]] absl::Status End(const absl::Status& status);
  std::string Describe() const;

  const std::shared_ptr<NodeConnection> connection_;
  const LoadRequest request_;
  const v1::BeginLoadResponse plan_;
  const absl::Time deadline_;
  std::vector<std::vector<std::byte>> small_;
  WorkerPool scatterers_;
  bool ended_ = false;
};

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CPP_LOAD_HANDLE_H_
