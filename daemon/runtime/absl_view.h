// Abseil's string_view is a type of its own where Abseil was built for an older
// standard, as Debian's is.
#ifndef CKPTD_DAEMON_RUNTIME_ABSL_VIEW_H_
#define CKPTD_DAEMON_RUNTIME_ABSL_VIEW_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace ckptd {

inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_ABSL_VIEW_H_
