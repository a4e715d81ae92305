// The phases of a save as people read them.
#ifndef CKPTD_PROTO_RPC_SAVE_PHASE_H_
#define CKPTD_PROTO_RPC_SAVE_PHASE_H_

#include "ckptd/v1/node.pb.h"

namespace ckptd {

// "unknown" for what a newer peer may have added.
inline const char* SavePhaseName(v1::SavePhase phase) {
  switch (phase) {
    case v1::SAVE_PHASE_PLAN:
      return "plan";
    case v1::SAVE_PHASE_SNAPSHOT:
      return "snapshot";
    case v1::SAVE_PHASE_PERSIST:
      return "persist";
    case v1::SAVE_PHASE_COMMIT:
      return "commit";
    case v1::SAVE_PHASE_DURABLE:
      return "durable";
    case v1::SAVE_PHASE_FAILED:
      return "failed";
    default:
      return "unknown";
  }
}

}  // namespace ckptd

#endif  // CKPTD_PROTO_RPC_SAVE_PHASE_H_
