// Where a rank's bytes lie in its data files. Pure: values in, values out.
//
// A rank has up to two files per attempt: one of planned pieces, which follows from
// the plan and so is the same at every save, and one of the small contents that
// it holds for its node, which follows from each save's hashes.
#ifndef CKPTD_DAEMON_NODE_IMAGE_LAYOUT_H_
#define CKPTD_DAEMON_NODE_IMAGE_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ckptd/v1/coordinator.pb.h"
#include "ckptd/v1/node.pb.h"
#include "daemon/node/checked_layout.h"
#include "storage/format/data_file.h"
#include "storage/layout/box.h"

namespace ckptd {

using DataFileLayoutPtr = std::shared_ptr<const DataFileLayout>;

// Each rank has two file numbers of its own, so that names never meet.
inline int TensorFileIndex(uint32_t rank) { return static_cast<int>(2 * rank); }
inline int SmallFileIndex(uint32_t rank) { return static_cast<int>(2 * rank + 1); }

struct PlacedPiece {
  uint32_t shard = 0;  // index into the rank's layout
  Box box;
};

// Immutable; shared by all attempts of a plan.
struct TensorImage {
  DataFileLayoutPtr file;           // null: this rank writes no planned piece
  std::vector<PlacedPiece> pieces;  // pieces[i] lies at file->piece_offset(i)
  uint64_t image_bytes() const { return file == nullptr ? 0 : file->file_bytes(); }
};

using TensorImagePtr = std::shared_ptr<const TensorImage>;

// INTERNAL where the coordinator's plan does not fit the rank's layout.
absl::StatusOr<TensorImagePtr> LayOutTensors(const CheckedLayout& layout, const v1::RankPlan& plan);
void AddPlacements(const TensorImage& image, v1::BeginSaveResponse& response);

struct SmallImage {
  DataFileLayoutPtr file;          // null: this rank holds nothing
  std::vector<uint32_t> contents;  // contents[i], an index into layout.small, is piece i
  uint64_t image_bytes() const { return file == nullptr ? 0 : file->file_bytes(); }
};

// `sizes` as in BeginSaveRequest.small, `held` ascending indices into it. The
// first rank's keys are plain names, the others' say whose copy it is ("rng@rank3"):
// while files are written nobody knows whether the ranks agree.
absl::StatusOr<SmallImage> LayOutSmall(const CheckedLayout& layout, uint32_t rank,
                                       const std::vector<uint64_t>& sizes,
                                       const std::vector<uint32_t>& held);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_NODE_IMAGE_LAYOUT_H_
