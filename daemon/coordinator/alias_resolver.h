// Which tensors are wholly the bytes of another tensor (tied weights). Pure.
#ifndef CKPTD_DAEMON_COORDINATOR_ALIAS_RESOLVER_H_
#define CKPTD_DAEMON_COORDINATOR_ALIAS_RESOLVER_H_

#include <cstdint>
#include <vector>

#include "daemon/coordinator/state_index.h"

namespace ckptd {

// By entry: the entry that it is an alias of, following chains to their end;
// UINT32_MAX where it is none. An entry is an alias when every rank's every shard
// of it names the same other tensor, which has the same type and shape and, on that
// rank, a shard with the same box. Rings of aliases are none.
std::vector<uint32_t> ResolveAliases(const StateIndex& index);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_ALIAS_RESOLVER_H_
