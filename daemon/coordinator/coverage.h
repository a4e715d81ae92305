// Finding the pair that an exact-cover check stumbled over, to name its owners.
#ifndef CKPTD_DAEMON_COORDINATOR_COVERAGE_H_
#define CKPTD_DAEMON_COORDINATOR_COVERAGE_H_

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "storage/layout/box.h"

namespace ckptd {

// Indices of two boxes of one tensor that share an element, the smaller first;
// nullopt if none do. For error messages: sorted by the first dimension, quadratic
// only in boxes that overlap there.
std::optional<std::pair<size_t, size_t>> FindOverlap(std::span<const Box> boxes);

}  // namespace ckptd

#endif  // CKPTD_DAEMON_COORDINATOR_COVERAGE_H_
