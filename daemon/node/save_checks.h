// What a trainer's request to save must fulfil. Pure.
#ifndef CKPTD_DAEMON_NODE_SAVE_CHECKS_H_
#define CKPTD_DAEMON_NODE_SAVE_CHECKS_H_

#include "absl/status/status.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/checked_layout.h"

namespace ckptd {

// All but the layout and the contents.
[[nodiscard]] absl::Status CheckSaveRequest(const v1::BeginSaveRequest& request);
// That the small contents are those which the layout announces, of sizes that can be.
[[nodiscard]] absl::Status CheckSmallContents(const CheckedLayout& layout,
                                              const v1::BeginSaveRequest& request);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_SAVE_CHECKS_H_
