// Which pieces of one tensor a box meets, without looking at all of them. Pure.
#ifndef CKPTD_DAEMON_COORDINATOR_PIECE_INDEX_H_
#define CKPTD_DAEMON_COORDINATOR_PIECE_INDEX_H_

#include <cstdint>
#include <vector>

#include "storage/layout/box.h"

namespace ckptd {

// Immutable; safe to read from any thread.
class PieceIndex {
 public:
  explicit PieceIndex(std::vector<Box> pieces);

  // Ascending indices into the pieces given.
  std::vector<uint32_t> Meeting(const Box& box) const;
  const Box& piece(uint32_t i) const { return pieces_[i]; }

 private:
  std::vector<Box> pieces_;
  size_t dimension_ = 0;         // the one with the most distinct offsets
  int64_t longest_ = 0;          // of all pieces, along dimension_
  std::vector<uint32_t> order_;  // by offset along dimension_
};

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_PIECE_INDEX_H_
