#!/usr/bin/env bash
# The fault matrix: every decoder of kernels/quant with each fault planted must fail the check that
# it passes without. On the host always; on the GPU where there is one (APR_REQUIRE_GPU=1: must be).
#   tools/fault_matrix.sh [BUILD_DIR]   a configured build folder with tests; default: build
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}

[[ -f $build/build.ninja ]] || { echo "fault_matrix: $build is no build folder: cmake -G Ninja -B $build" >&2; exit 2; }
programs=(quant_faults_test quant_device_test)
grep -q 'gpu_faults_test' "$build/build.ninja" && programs+=(gpu_faults_test)
ninja -C "$build" "${programs[@]}" >&2

failed=0
echo "== host: planted"
"$build/tests/quant_faults_test" --gtest_brief=1 || failed=1
echo "== host: restored tree"
"$build/tests/quant_device_test" --gtest_brief=1 || failed=1
if [[ " ${programs[*]} " == *' gpu_faults_test '* ]]; then
  echo "== GPU: planted and restored"
  "$build/tests/gpu_faults_test" || failed=1
else
  echo "== GPU: NOT RUN: built without CUDA"
fi
[[ $failed == 0 ]] && echo "fault matrix: as it must be" || echo "fault matrix: FAILED"
exit $failed
