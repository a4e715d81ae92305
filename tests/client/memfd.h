// Memory as the node daemon would send it.
#ifndef CKPTD_TESTS_CLIENT_MEMFD_H_
#define CKPTD_TESTS_CLIENT_MEMFD_H_

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "proto/rpc/unique_fd.h"
#include "tests/catch.h"

namespace ckptd {

inline UniqueFd NewMemfd(uint64_t bytes, int seals) {
  UniqueFd memfd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(memfd.get(), static_cast<off_t>(bytes)) == 0);
  if (seals != 0) REQUIRE(::fcntl(memfd.get(), F_ADD_SEALS, seals) == 0);
  return memfd;
}

}  // namespace ckptd

#endif  // CKPTD_TESTS_CLIENT_MEMFD_H_
