# Sourced by the measuring programs. prepare bench/NAME ARGUMENT... takes the options that
# they share off the arguments, checks the others (ckptd_bench/NAME_options.py), installs
# and builds what is missing, and leaves
#   BUILD_DIR    the build folder
#   PYTHON       an interpreter with ckptd's client and the measuring package
#   ARGUMENTS    what is left of the arguments

SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD_DIR=$SOURCE_DIR/build
LOG_DIR=$BUILD_DIR/logs
VENV=$BUILD_DIR/venv
ARGUMENTS=()
source "$SOURCE_DIR/deploy/tools/progress.sh"
export CCACHE_BASEDIR=$SOURCE_DIR CCACHE_NOHASHDIR=1

prepare() {
  local program=$1 build=yes help=no install_options=()
  shift
  while (($#)); do
    case $1 in
      --no-build) build=no; shift ;;
      --torch)
        (($# > 1)) || { echo "$program: --torch needs what pip is to install" >&2; exit 2; }
        install_options+=(--torch "$2"); shift 2 ;;
      -h | --help) help=yes; shift ;;
      *) ARGUMENTS+=("$1"); shift ;;
    esac
  done
  export PYTHONPATH=$SOURCE_DIR/bench${PYTHONPATH:+:$PYTHONPATH}
  if [[ $help == yes ]]; then usage "$program"; exit 0; fi
  # Before minutes of building, where a Python is there to do it.
  if command -v python3 >/dev/null; then check_arguments "$program" "${ARGUMENTS[@]}"; fi
  if [[ $build == yes ]]; then install_and_build "${install_options[@]}"; fi
  PYTHON=$VENV/bin/python
  if [[ ! -x $PYTHON ]]; then
    echo "$program: $PYTHON is not there; run $program without --no-build first" >&2
    exit 2
  fi
}

check_arguments() {
  python3 -m "ckptd_bench.${1#bench/}_options" "${@:2}"
}

usage() {
  echo "usage: $1 [--no-build] [--torch SPEC] [options]"
  echo "  --no-build    use build/ and build/venv as they are"
  echo "  --torch SPEC  what pip installs where PyTorch is missing (default: \"torch\")"
  echo "options:"
  check_arguments "$1" --help | sed -n '/^options:/,$p' | tail -n +3
}

# Progress goes to standard error: standard output is the result's.
install_and_build() {
  (
    cd "$SOURCE_DIR"
    deploy/install_dependencies.sh --for bench --venv "$VENV" --log "$LOG_DIR" "$@"
    # Tests are left as an earlier tests/run.sh configured them, or off.
    tests=OFF
    grep -qs '^CKPTD_BUILD_TESTS:BOOL=ON' "$BUILD_DIR/CMakeCache.txt" && tests=ON
    step "configuration" cmake -S . -B "$BUILD_DIR" -G Ninja -DCKPTD_BUILD_TESTS=$tests
    step "build of ckptd and ckptctl" ninja -C "$BUILD_DIR" ckptd ckptctl
    step "pip install ./client/python" "$VENV/bin/python" -m pip install ./client/python
  ) >&2
}
