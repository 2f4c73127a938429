# shellcheck shell=bash disable=SC2034
# Sourced by quickstart.sh and test.sh, from the root of the tree: packages, CUDA headers, one way to configure.

# Prints its arguments, a line each, to stderr, which carries everything but a program's answer.
say() { printf '%s\n' "$@" >&2; }

# Runs a command with its output in LOG; on failure shows the end of LOG and answers 1.
logged() {
  local log=$1
  shift
  mkdir -p "$(dirname "$log")"
  "$@" > "$log" 2>&1 && return 0
  say "FAILED: $* (the end of its output; all of it is in $log)"
  tail -n 40 "$log" >&2
  return 1
}

# Packages of the named groups of tools/packages.txt that are not installed, one a line.
missing_packages() {
  local wanted
  mapfile -t wanted < <(awk -v groups=" $* " '!/^#/ && index(groups, " " $1 " ") { print $2 }' \
    tools/packages.txt | sort -u)
  comm -23 <(printf '%s\n' "${wanted[@]}") \
    <(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${wanted[@]}" 2> /dev/null |
      awk '$2 == "installed" { print $1 }' | sort -u)
}

# Installs the missing packages of the named groups; without root names them and answers 1.
ensure_packages() {
  if ! command -v dpkg-query > /dev/null; then
    say "note: no dpkg here, so the packages of tools/packages.txt ($*) are not checked; CMake names what it misses"
    return 0
  fi
  local missing install
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} = 0 ] && return 0
  install=(apt-get install -y --no-install-recommends "${missing[@]}")
  if [ "$(id -u)" != 0 ]; then
    say "missing packages: ${missing[*]}" "" "Installing them needs root. Run this, then start again:" \
      "  sudo sh -c 'apt-get update && ${install[*]}'"
    return 1
  fi
  say "installing packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  logged build/setup/apt-update.log apt-get update && logged build/setup/apt-install.log "${install[@]}"
}

# The folder of an installed CUDA toolkit's headers, or nothing.
toolkit_headers() {
  local nvcc root
  nvcc=$(command -v nvcc || true)
  for root in "${CUDA_HOME:-}" "${CUDA_PATH:-}" "${nvcc%/bin/nvcc}" /usr/local/cuda /usr; do
    if [ -n "$root" ] && [ -f "$root/include/cuda_runtime.h" ] && [ -f "$root/include/nvrtc.h" ] &&
      [ -f "$root/include/cublasLt.h" ]; then
      echo "$root/include"
      return
    fi
  done
}

has_cuda_driver() {
  command -v nvidia-smi > /dev/null || ldconfig -p 2> /dev/null | grep -q 'libcuda\.so\.1'
}

# Fetches NVIDIA's headers and libraries (one set, CUDA 13.0) from PyPI into build/cuda-headers.
fetch_cuda_headers() {
  local target=build/cuda-headers
  local wheels=(nvidia-cuda-runtime==13.0.96 nvidia-cuda-crt==13.0.88 nvidia-cublas==13.0.2.14
    nvidia-cuda-nvrtc==13.0.88 nvidia-cuda-cccl==13.0.85)  # cccl: cublasLt.h includes its nv/target
  [ "$(cat $target/wheels 2> /dev/null)" = "${wheels[*]}" ] && return 0
  say "fetching CUDA headers and libraries from PyPI (about 0.5 GB): ${wheels[*]}"
  rm -rf $target
  ensure_packages cuda &&
    logged build/setup/cuda-headers.log python3 -m pip install -q --disable-pip-version-check \
      --no-deps --no-compile --target $target "${wheels[@]}" && echo "${wheels[*]}" > $target/wheels
}

# Sets cuda_options, the CMake options for this machine's GPU: none without a driver or with a toolkit.
find_cuda_options() {
  cuda_options=()
  has_cuda_driver && [ -z "$(toolkit_headers)" ] || return 0
  if fetch_cuda_headers; then
    cuda_options=("-DAPR_CUDA_HEADERS=$PWD/build/cuda-headers/nvidia/cu13/include")
  else
    say "WARNING: a CUDA driver is here but NVIDIA's headers are not: this build is CPU-only and --gpu will" \
      "answer exit 9. To fix it: install the CUDA toolkit, or make PyPI reachable, and start again."
  fi
}

# configure_and_build DIR "TARGET..." OPTIONS...: configures quietly, builds with ninja's progress shown.
configure_and_build() {
  local dir=$1 targets
  read -ra targets <<< "$2"
  shift 2
  logged "$dir/configure.log" cmake -S . -B "$dir" -G Ninja "$@" || return 1
  NINJA_STATUS="[$dir %f/%t, %es] " cmake --build "$dir" --target "${targets[@]}" >&2
}
