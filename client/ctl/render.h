// What ckptctl prints, as a function of the daemon's answers: text for people, and
// JSON whose keys never change their meaning.
#ifndef CKPTD_CLIENT_CTL_RENDER_H_
#define CKPTD_CLIENT_CTL_RENDER_H_

#include <string>

#include "absl/time/time.h"
#include "ckptd/v1/manifest.pb.h"
#include "ckptd/v1/node.pb.h"
#include "client/ctl/verify.h"

namespace ckptd {

std::string ListText(const v1::ListCheckpointsResponse& answer, absl::Time now);
// {"checkpoints":[{"job":,"step":,"latest":,"committed":,"attempt":,"world_size":,
//   "size_bytes":,"tensors":,"files":,"store":,"user_id":,"parent_step":}]}
std::string ListJson(const v1::ListCheckpointsResponse& answer);

std::string ShowText(const v1::ShowCheckpointResponse& answer, const v1::Manifest& manifest,
                     absl::Time now);
// {"checkpoint":{as in list},"folder":,"tags":{},"tensors":[{"name":,"data_type":,"shape":,
//   "pieces":,"size_bytes":,"alias_of":}],"per_rank":[{"name":,"ranks":[[]]}],
//   "values":[{"name":,"copies":,"size_bytes":}],"files":[{"path":,"size_bytes":}]}
std::string ShowJson(const v1::ShowCheckpointResponse& answer, const v1::Manifest& manifest);

std::string StatusText(const v1::GetNodeStatusResponse& status);
std::string StatusJson(const v1::GetNodeStatusResponse& status);

// `removed`: false for what would be removed.
std::string RemovedText(const v1::RemoveCheckpointsResponse& answer, bool removed);
std::string RemovedJson(const v1::RemoveCheckpointsResponse& answer);

std::string VerifyText(const VerifyReport& report);
// {"folder":,"ok":,"files":,"tensors":,"chunks":,"bytes":,
//   "problems":[{"kind":,"file":,"tensor":,"chunk":,"message":}]}
std::string VerifyJson(const VerifyReport& report);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_RENDER_H_
