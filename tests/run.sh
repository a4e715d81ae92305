#!/usr/bin/env bash
# Every test of the tree; installs and builds what it needs by itself. The last line
# is "N passed, N failed"; the exit status is 0 only if something ran and nothing failed.
set -uo pipefail

SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$SOURCE_DIR" || exit 2
source deploy/tools/progress.sh

usage() {
  cat <<USAGE
usage: tests/run.sh [--all | --mutations] [options]
  (default)      format, build, C++ tests, Python tests, the short quickstart
  --all          also: clang-tidy, the C++ tests under AddressSanitizer + UBSan (g++) and
                 ThreadSanitizer (clang++ with -Wthread-safety); properties on 1,000,000 cases
  --mutations    only: each patch of tests/mutations/ takes out one guard; the test that
                 the patch names must then fail
  --torch SPEC   what pip installs where PyTorch is missing (default: "torch")
USAGE
}

MODE=default
INSTALL_OPTIONS=()
while (($#)); do
  case $1 in
    --all) MODE=all; shift ;;
    --mutations) MODE=mutations; shift ;;
    --torch) INSTALL_OPTIONS+=(--torch "$2"); shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done

BUILD_DIR=$SOURCE_DIR/build
LOG_DIR=$BUILD_DIR/logs
RESULTS=$BUILD_DIR/results
VENV=$BUILD_DIR/venv
# Objects are found again in the cache from another checkout too.
export CCACHE_BASEDIR=$SOURCE_DIR CCACHE_NOHASHDIR=1
rm -rf "$RESULTS"
mkdir -p "$RESULTS"

# record NAME PASSED FAILED: one suite's part of the total.
record() {
  echo "$2 $3" >"$RESULTS/${1//[^A-Za-z0-9]/-}.count"
  printf '%-34s %6d passed, %d failed\n' "$1" "$2" "$3"
}

# check NAME COMMAND...: a suite of one test.
check() {
  local name=$1
  shift
  if step "$name" "$@"; then record "$name" 1 0; else record "$name" 0 1; fi
}

finish() {
  local passed failed skipped
  read -r passed failed skipped < <(cat "$RESULTS"/*.count 2>/dev/null |
    awk '{ passed += $1; failed += $2; skipped += $3 } END { print passed + 0, failed + 0, skipped + 0 }')
  ((skipped == 0)) || echo "$skipped skipped: they need another user, or something this machine lacks"
  echo "$passed passed, $failed failed"
  ((passed > 0 && failed == 0))
  exit
}

build() {  # FOLDER, then CMake options
  local folder=$1
  shift
  cmake -S . -B "$folder" -G Ninja "$@" && ninja -C "$folder"
}

install_client() {
  check "pip install ./client/python" "$VENV/bin/python" -m pip install ./client/python
}

# Every C++ test program of a build folder; counts test cases.
run_cpp_tests() {  # NAME FOLDER
  python3 tests/tools/run_catch2.py --name "$1" --build "$2" --results "$RESULTS" ||
    record "$1: run_catch2.py" 0 1
}

run_python_tests() {
  python3 tests/tools/run_pytest.py --python "$VENV/bin/python" --results "$RESULTS" ||
    record "run_pytest.py" 0 1
}

check_format() {
  # Without what pip has generated: a second run finds it there.
  find client daemon proto storage tests -name build -prune -o \
    \( -name '*.cc' -o -name '*.h' -o -name '*.c' \) -print |
    xargs clang-format --dry-run --Werror
}

# Unity builds: most of an instrumented compilation is the headers of gRPC and RocksDB,
# which several files then share.
sanitized_tests() {  # NAME SANITIZERS COMPILER
  local folder=$SOURCE_DIR/build-$1
  if ! step "$1: build" build "$folder" -DCKPTD_BUILD_TESTS=ON -DCKPTD_SANITIZE="$2" \
    -DCMAKE_CXX_COMPILER="$3" -DCMAKE_UNITY_BUILD=ON; then
    record "$1: build" 0 1
    return
  fi
  record "$1: build" 1 0
  run_cpp_tests "$1" "$folder"
}

run_all_extras() {
  check "clang-tidy" python3 tests/tools/run_clang_tidy.py --build "$BUILD_DIR"
  ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    sanitized_tests asan address,undefined g++
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$SOURCE_DIR/tests/sanitizer/tsan.supp \
    sanitized_tests tsan thread clang++
}

dependencies=tests
[[ $MODE == all ]] && dependencies=all-tests
if ! deploy/install_dependencies.sh --for "$dependencies" --venv "$VENV" --log "$LOG_DIR" \
  "${INSTALL_OPTIONS[@]}"; then
  record "installation" 0 1
  finish
fi

if [[ $MODE == mutations ]]; then
  install_client  # for what it depends on; each mutant's own is put before it
  python3 tests/tools/run_mutations.py --results "$RESULTS" --python "$VENV/bin/python" ||
    record "run_mutations.py" 0 1
  finish
fi

check "format" check_format
if ! step "build" build "$BUILD_DIR" -DCKPTD_BUILD_TESTS=ON; then
  record "build" 0 1
  finish
fi
install_client

[[ $MODE == all ]] && export CKPTD_PROPERTY_CASES=1000000
run_cpp_tests "C++" "$BUILD_DIR"
unset CKPTD_PROPERTY_CASES
run_python_tests
check "quickstart, short form" deploy/quickstart.sh --short --no-build
[[ $MODE == all ]] && run_all_extras
finish
