// From what the nodes say they have written to the manifest that makes it a
// checkpoint. Everything is checked here once more: the plan is what should have
// been written, the reports are what was.
//
// Pure: values in, values out.
#ifndef CKPTD_DAEMON_COORDINATOR_MANIFEST_BUILDER_H_
#define CKPTD_DAEMON_COORDINATOR_MANIFEST_BUILDER_H_

#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ckptd/v1/coordinator.pb.h"
#include "ckptd/v1/manifest.pb.h"
#include "daemon/coordinator/save_planner.h"

namespace ckptd {

// What can be said of one node's report without knowing the layouts: files carry
// this attempt's and this node's names, pieces lie inside files, sizes, boxes and
// checksums agree with each other. INVALID_ARGUMENT naming the entry.
absl::Status CheckReport(const v1::CommitSaveRequest& report);

// Fills files, tensors, per_rank and values of a manifest that holds the rest
// already. `reports` are all nodes', each passed by CheckReport.
// - Pieces of every tensor cover it exactly, each inside the shard it names.
// - A small content that all ranks which gave the name agree on is one copy; else
//   it is one per distinct content, with its ranks.
// - Files that nothing points into are left out.
// INVALID_ARGUMENT listing every tensor and value that is not as it should be.
absl::Status FillManifest(const SavePlan& plan,
                          std::span<const v1::CommitSaveRequest* const> reports,
                          v1::Manifest& manifest);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_MANIFEST_BUILDER_H_
