# Everything from outside, found once. What is optional says so when it is missing.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

if(CKPTD_BUILD_DAEMON)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
  pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
  find_package(RocksDB CONFIG REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
endif()

if(CKPTD_BUILD_TESTS)
  find_package(Catch2 REQUIRED)
  find_package(rapidcheck CONFIG REQUIRED)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

include(${CMAKE_CURRENT_LIST_DIR}/Accelerators.cmake)
