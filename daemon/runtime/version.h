// The version of this build, as the top CMakeLists.txt has it: "0.1.0".
#ifndef CKPTD_DAEMON_RUNTIME_VERSION_H_
#define CKPTD_DAEMON_RUNTIME_VERSION_H_

#include <string>

namespace ckptd {

std::string Version();

}  // namespace ckptd

#endif  // CKPTD_DAEMON_RUNTIME_VERSION_H_
