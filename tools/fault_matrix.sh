#!/usr/bin/env bash
# The fault matrix: every decoder of kernels/quant with each fault planted must fail the check that
# it passes without. On the host always; on the GPU where there is one (APR_REQUIRE_GPU=1: must be).
#   tools/fault_matrix.sh [BUILD_DIR]   a configured build folder with tests; default: build
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}

[[ -f $build/build.ninja ]] || { echo "fault_matrix: $build is no build folder: cmake -G Ninja -B $build" >&2; exit 2; }
programs=(quant_faults_test quant_device_test fit_faults_test)
grep -q 'gpu_faults_test' "$build/build.ninja" && programs+=(gpu_faults_test)
ninja -C "$build" "${programs[@]}" >&2

failed=0
echo "== host: planted"
"$build/tests/quant_faults_test" --gtest_brief=1 || failed=1
"$build/tests/fit_faults_test" --gtest_brief=1 || failed=1
echo "== host: restored tree"
"$build/tests/quant_device_test" --gtest_brief=1 || failed=1
gpu="NOT RUN: built without CUDA"
if [[ " ${programs[*]} " == *' gpu_faults_test '* ]]; then
  echo "== GPU: planted and restored"
  log=$(mktemp)
  gpu="run"
  "$build/tests/gpu_faults_test" | tee "$log" || failed=1
  ! grep -q SKIPPED "$log" || gpu="NOT RUN: no GPU"
  rm -f "$log"
fi
[[ $failed == 0 ]] && result="as it must be" || result="FAILED"
echo "fault matrix: $result (host: run; GPU: $gpu)"
exit $failed
