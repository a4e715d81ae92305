# ckptd_library(name SOURCES ... DEPENDS ...): a static library of ours, with our
# warnings, whose headers are named from the top of the tree.
function(ckptd_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Werror -Wno-missing-field-initializers
    $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

function(ckptd_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPENDS})
  ckptd_warnings(${name})
endfunction()

function(ckptd_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  if(CKPTD_SANITIZE STREQUAL "thread")
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/sanitizer/abseil_for_tsan.cc)
    target_link_libraries(${name} PRIVATE absl::status absl::synchronization)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  ckptd_warnings(${name})
endfunction()

if(CKPTD_SANITIZE)
  # -O1: half the compile time, and backtraces that can be read. The checks' own branches
  # make GCC see uninitialized values where there are none.
  add_compile_options(-O1 -fsanitize=${CKPTD_SANITIZE} -fno-omit-frame-pointer
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${CKPTD_SANITIZE})
endif()
