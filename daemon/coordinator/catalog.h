// The RocksDB index of jobs, checkpoints and their entries.
//
//   'j' <job>                          JobRecord
//   'c' <job> 0 <step, 8 bytes BE>     CheckpointRecord
//   'n' <job> 0 <step>                 NameIndex
//   'e' <job> 0 <step> <name>          CatalogEntry
//
// Every write is one synced batch: after a crash a checkpoint is in the catalog
// wholly or not at all.
//
// Thread-safe. Calls may block on the disk: not for a call's own thread. Errors:
// RocksDB's message, with what was being done.
#ifndef CKPTD_DAEMON_COORDINATOR_CATALOG_H_
#define CKPTD_DAEMON_COORDINATOR_CATALOG_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/catalog.pb.h"

namespace ckptd {

class Catalog {
 public:
  // The catalog as it was when the view was made, whatever is written later. Must
  // not outlive the catalog. Thread-safe.
  class View {
   public:
    virtual ~View() = default;
    // NOT_FOUND where there is no such checkpoint.
    virtual absl::StatusOr<v1::CheckpointRecord> Checkpoint(const std::string& job,
                                                            uint64_t step) const = 0;
    virtual absl::StatusOr<v1::NameIndex> Names(const std::string& job, uint64_t step) const = 0;
    // nullopt where the checkpoint has no such name.
    virtual absl::StatusOr<std::optional<v1::CatalogEntry>> Find(const std::string& job,
                                                                 uint64_t step,
                                                                 std::string_view name) const = 0;
  };

  virtual ~Catalog() = default;

  virtual absl::StatusOr<std::vector<v1::JobRecord>> Jobs() const = 0;
  // Of all jobs, by job, then step.
  virtual absl::StatusOr<std::vector<v1::CheckpointRecord>> Checkpoints() const = 0;
  virtual std::unique_ptr<View> MakeView() const = 0;

  virtual absl::Status PutJob(const v1::JobRecord& record) = 0;
  // Replaces whatever the catalog has of that step, and the job's record.
  virtual absl::Status PutCheckpoint(const v1::JobRecord& job, const v1::CheckpointRecord& record,
                                     const v1::Manifest& manifest) = 0;
  // OK where there is none.
  virtual absl::Status RemoveCheckpoint(const std::string& job, uint64_t step) = 0;
};

// Creates the folder if its parent exists. FAILED_PRECONDITION when another process
// (or catalog of this one) has it open.
absl::StatusOr<std::unique_ptr<Catalog>> OpenCatalog(const std::string& path);

// What the catalog keeps of a manifest. `frame` is the manifest file's beginning.
v1::CheckpointRecord MakeCheckpointRecord(const v1::Manifest& manifest, const std::string& store,
                                          std::string_view frame);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_CATALOG_H_
