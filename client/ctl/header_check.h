// Does a data file's safetensors header say the same as the manifest?
#ifndef CKPTD_CLIENT_CTL_HEADER_CHECK_H_
#define CKPTD_CLIENT_CTL_HEADER_CHECK_H_

#include <string>
#include <string_view>
#include <vector>

#include "ckptd/v1/manifest.pb.h"
#include "storage/layout/data_type.h"

namespace ckptd {

// A piece of the manifest that lies in the file, with what its entry says of it.
struct ExpectedPiece {
  const v1::Piece* piece = nullptr;
  std::string_view name;
  DataType data_type = DataType::kUnspecified;
  std::vector<int64_t> shape;  // of the whole tensor
};

// `header` is the file's first header_bytes. One sentence per disagreement; none if
// the two agree. Header entries that no piece names are no disagreement: another
// node's equal copy may have been taken.
std::vector<std::string> CheckHeader(std::string_view header,
                                     const std::vector<ExpectedPiece>& pieces);

}  // namespace ckptd

#endif  // CKPTD_CLIENT_CTL_HEADER_CHECK_H_
