#!/usr/bin/env bash
# Installs what is missing, builds ckptd, starts it in a temporary folder and runs the
# main job on it: a GPT in training that is killed twice and resumes under other layouts
# (deploy/quickstart/main_job.py says how). Leaves nothing running.
set -euo pipefail

SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$SOURCE_DIR"
source deploy/tools/progress.sh

usage() {
  cat <<USAGE
usage: deploy/quickstart.sh [options]
  --short        a smaller model and fewer steps
  --keep         keep the checkpoints and logs of the main job
  --torch SPEC   what pip installs where PyTorch is missing (default: "torch")
  --no-build     use build/ and build/venv as they are
USAGE
}

BUILD=yes
JOB_OPTIONS=()
INSTALL_OPTIONS=()
while (($#)); do
  case $1 in
    --short | --keep) JOB_OPTIONS+=("$1"); shift ;;
    --torch) INSTALL_OPTIONS+=(--torch "$2"); shift 2 ;;
    --no-build) BUILD=no; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done

BUILD_DIR=$SOURCE_DIR/build
LOG_DIR=$BUILD_DIR/logs
VENV=$BUILD_DIR/venv
export CCACHE_BASEDIR=$SOURCE_DIR CCACHE_NOHASHDIR=1

if [[ $BUILD == yes ]]; then
  deploy/install_dependencies.sh --venv "$VENV" --log "$LOG_DIR" "${INSTALL_OPTIONS[@]}"
  # Tests are left as an earlier tests/run.sh configured them, or off.
  tests=OFF
  grep -qs '^CKPTD_BUILD_TESTS:BOOL=ON' "$BUILD_DIR/CMakeCache.txt" && tests=ON
  step "configuration" cmake -S . -B "$BUILD_DIR" -G Ninja -DCKPTD_BUILD_TESTS=$tests
  step "build of ckptd and ckptctl" ninja -C "$BUILD_DIR" ckptd ckptctl
  step "pip install ./client/python" "$VENV/bin/python" -m pip install ./client/python
fi

exec "$VENV/bin/python" deploy/quickstart/main_job.py --build "$BUILD_DIR" "${JOB_OPTIONS[@]}"
