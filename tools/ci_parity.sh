#!/usr/bin/env bash
# Acceptance of this build for the models that you have: each goes through every verb on the CPU and on the GPU, in
# every mode, one line and one JSON receipt a cell. Exit 0 only where every cell passed: a skip is no pass, so a
# machine without a GPU needs --cpu-only.
#   --cpu-only               leave the GPU's cells out
#   APR_BUILD=dir            a build that exists (dir/apr); else it is built here
#   APR_CELL_SECONDS=600     how long one cell may take
#   APR_PARITY_RESULTS=dir   where the receipts go (build/ci-parity/<time>)
#   APR_LENGTHS="1..64,127,255,511"   prompt lengths of the GPU's parity cells
#   APR_COMMIT=hash          the commit, where there is no git
# usage: bash tools/ci_parity.sh [--cpu-only] DIR|MODEL.gguf ...
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
if [ -z "${APR_BUILD:-}" ]; then
  APR_BUILD=$(
    cd "$here" && . tools/setup.sh && ensure_packages build && find_cuda_options &&
      configure_and_build build-parity apr -DCMAKE_BUILD_TYPE=Release "${cuda_options[@]}" >&2 &&
      echo "$here/build-parity"
  ) || exit 1
fi
APR=$APR_BUILD/apr exec python3 "$here/tools/ci_parity.py" "$@"
