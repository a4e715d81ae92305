#include "daemon/runtime/version.h"

namespace ckptd {

std::string Version() { return CKPTD_VERSION; }

}  // namespace ckptd
