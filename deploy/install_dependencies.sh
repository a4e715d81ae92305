#!/usr/bin/env bash
# Installs what ckptd's build, its tests and its Python package need, as far as it
# is missing: Debian packages by apt (as root), Python packages into a virtual
# environment. Run again, it finds everything there and does nothing.
#
# PyTorch: an installed one is used (the environment then sees the system's
# packages); else pip installs its default build, whose size is said first.
set -euo pipefail

SOURCE_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$SOURCE_DIR/deploy/tools/progress.sh"

usage() {
  cat <<USAGE
usage: deploy/install_dependencies.sh [options]
  --venv DIR     the Python environment to make or complete (default: build/venv)
  --torch SPEC   what pip installs where PyTorch is missing (default: "torch"); for
                 example --torch "torch==2.13.0", or a wheel's path or address
  --for GROUP    build | tests | all-tests | bench (default: build)
  --log DIR      where logs go (default: build/logs)
USAGE
}

VENV=$SOURCE_DIR/build/venv
TORCH=torch
GROUP=build
LOG_DIR=$SOURCE_DIR/build/logs
while (($#)); do
  case $1 in
    --venv) VENV=$2; shift 2 ;;
    --torch) TORCH=$2; shift 2 ;;
    --for) GROUP=$2; shift 2 ;;
    --log) LOG_DIR=$2; shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "install_dependencies.sh: unknown argument $1" >&2; usage >&2; exit 2 ;;
  esac
done

DEBIAN_BUILD=(build-essential cmake ninja-build ccache pkg-config
  protobuf-compiler protobuf-compiler-grpc libprotobuf-dev libgrpc++-dev libabsl-dev
  librocksdb-dev prometheus-cpp-dev libisal-dev liburing-dev libssl-dev
  libcurl4-openssl-dev zlib1g-dev python3 python3-venv ca-certificates)
DEBIAN_TESTS=(catch2 librapidcheck-dev clang-format git patch)
DEBIAN_ALL_TESTS=(clang clang-tidy libclang-rt-dev)
DEBIAN_BENCH=(fio util-linux)
PYTHON_BUILD=(numpy safetensors)
PYTHON_TESTS=(pytest)

debian_packages=("${DEBIAN_BUILD[@]}")
python_packages=("${PYTHON_BUILD[@]}")
case $GROUP in
  build) ;;
  tests | all-tests)
    debian_packages+=("${DEBIAN_TESTS[@]}")
    python_packages+=("${PYTHON_TESTS[@]}") ;;&
  all-tests) debian_packages+=("${DEBIAN_ALL_TESTS[@]}") ;;
  tests) ;;
  bench) debian_packages+=("${DEBIAN_BENCH[@]}") ;;
  *) echo "install_dependencies.sh: --for takes build, tests, all-tests or bench, not $GROUP" >&2; exit 2 ;;
esac

missing_debian_packages() {
  local package
  for package in "${debian_packages[@]}"; do
    dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
      echo "$package"
  done
}

install_debian_packages() {
  local missing
  mapfile -t missing < <(missing_debian_packages)
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    echo "These Debian packages are missing, and only root can install them:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    return 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  step "package lists" apt-get update
  step "${#missing[@]} Debian packages: ${missing[*]}" \
    apt-get install -y --no-install-recommends "${missing[@]}"
}

# The first Python of PATH that has PyTorch, else Debian's own.
python_to_build_on() {
  local candidate
  for candidate in python3 /usr/bin/python3; do
    if "$candidate" -c 'import torch' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable, "--system-site-packages")'
      return
    fi
  done
  echo /usr/bin/python3
}

make_environment() {
  if ! "$VENV/bin/python" -c 'import sys' 2>/dev/null; then
    local python
    read -ra python <<<"$(python_to_build_on)"
    step "Python environment ${VENV#"$SOURCE_DIR/"} on ${python[0]}" \
      "${python[0]}" -m venv --clear "${python[@]:1}" "$VENV"
    ((${#python[@]} == 1)) || see_packages_of "${python[0]}"
  fi
}

# The packages of a virtual environment are not the system's: one that has PyTorch is named
# to ours in a path file.
see_packages_of() {
  local packages="import sys, sysconfig; print(sysconfig.get_path('purelib'))"
  if "$1" -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)'; then
    "$1" -c "$packages" >"$("$VENV/bin/python" -c "$packages")/installed-pytorch.pth"
  fi
}

missing_python_packages() {
  "$VENV/bin/python" - "$@" <<'PYTHON'
import importlib.util, sys
print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))
PYTHON
}

install_torch() {
  [[ -n $(missing_python_packages torch) ]] || return 0
  step "size of PyTorch ($TORCH)" bash -c '"$0" "$1" "$2" >"$3"' \
    "$VENV/bin/python" "$SOURCE_DIR/deploy/tools/download_size.py" "$TORCH" "$LOG_DIR/torch-size"
  echo "    PyTorch is not installed; pip will download $(<"$LOG_DIR/torch-size")"
  step "PyTorch ($TORCH)" "$VENV/bin/python" -m pip install "$TORCH"
}

install_python_packages() {
  local missing
  read -ra missing <<<"$(missing_python_packages "${python_packages[@]}")"
  ((${#missing[@]})) || return 0
  step "Python packages: ${missing[*]}" "$VENV/bin/python" -m pip install "${missing[@]}"
}

mkdir -p "$LOG_DIR"
install_debian_packages
make_environment
install_torch
install_python_packages
