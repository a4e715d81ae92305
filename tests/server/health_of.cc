// health_of TARGET: prints what HealthOf says of the server.
#include <cstdio>

#include "tests/server/health_check.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  return std::puts(ckptd::HealthOf(argv[1]).c_str()) < 0 ? 1 : 0;
}
