// Which bytes of which files a load reads, and whose they are. Pure.
//
// Wanted boxes become whole chunks (so that every byte read can be verified), chunks
// become windows, and windows that lie close together in a file are read at once.
// A chunk is read once, however many ranks want some of it, and so is a block in which one
// read ends and the next begins.
#ifndef CKPTD_DAEMON_NODE_READ_PLAN_H_
#define CKPTD_DAEMON_NODE_READ_PLAN_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptd/v1/coordinator.pb.h"
#include "daemon/node/checked_layout.h"

namespace ckptd {

// Of one rank: what a window is for.
struct WindowTarget {
  uint32_t rank = 0;
  bool is_small = false;
  uint32_t index = 0;  // into its layout's shards, or its RankLoad.small
};

// Whole chunks of one piece, one after the other.
struct ReadPart {
  uint32_t piece = 0;  // index into PlanLoadResponse.pieces
  uint64_t piece_offset = 0;
  uint64_t length = 0;
  uint64_t buffer_offset = 0;
  std::vector<WindowTarget> targets;  // by rank
};

// offset and length are multiples of 4 KiB; the file may end inside the last block.
struct PlannedRead {
  uint32_t file = 0;
  uint64_t file_offset = 0;
  uint64_t length = 0;
  // The first (last) block is also the last (first) of the read before (behind) it:
  // it is to be read once for both.
  bool shares_first_block = false;
  bool shares_last_block = false;
  std::vector<ReadPart> parts;
};

// No read is longer than `read_bytes` (at least a chunk and two blocks, else
// INVALID_ARGUMENT). INTERNAL, naming the piece, where the coordinator's answer doesn't fit
// together or doesn't fit the layouts.
absl::StatusOr<std::vector<PlannedRead>> PlanReads(
    const v1::PlanLoadResponse& plan, const std::map<uint32_t, CheckedLayoutPtr>& layouts,
    uint64_t read_bytes);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_READ_PLAN_H_
