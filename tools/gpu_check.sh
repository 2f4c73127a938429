#!/usr/bin/env bash
# What a machine with an NVIDIA GPU must show: every `gpu` test, compute-sanitizer on the kernel tests, parity with
# the CPU. One line a check out of a fixed, counted list; exit 0 only if nothing failed. NOT RUN says why, and is no
# failure.
#   APR_BUILD=dir      a build that exists (apr, tests/*_test), for a machine without a compiler; else it is built here
#   APR_CHECKS="tests sanitizer parity"   which parts
#   APR_SYNTH="qwen3-0.6b:Q4_K_M qwen2.5-1.5b:Q4_K_M:8"   models to synthesise (name:mix[:layers]) where none is given
#   APR_LENGTHS="1..64,127,255,511"       prompt lengths of the parity sweep
#   APR_CHECK_LOGS=dir where each check's output goes (build/gpu-check)
#   APR_CHECK_SECONDS=600  how long one check may take
# usage: bash tools/gpu_check.sh [MODEL.gguf ...]
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/setup.sh

build=${APR_BUILD:-build-gpu}
parts=" ${APR_CHECKS:-tests sanitizer parity} "
lengths=${APR_LENGTHS:-1..64,127,255,511}
limit=${APR_CHECK_SECONDS:-600}
logs=${APR_CHECK_LOGS:-build/gpu-check}
mkdir -p "$logs"
export APR_REQUIRE_GPU=1

# The gpu tests, as the build files name them; the kernels' own among them go under the sanitizer.
mapfile -t gpu_tests < <(sed -n 's/^ *apr_test(\(gpu_[a-z_0-9]*\) .*LABEL gpu.*/\1/p' tests/cuda_tests.cmake)
sanitized=(gpu_rms_norm gpu_matvec gpu_attention gpu_moe gpu_projection gpu_tier gpu_dequant gpu_decode gpu_backend)
tools=(memcheck racecheck initcheck)
# Which of their tests: every kernel once, without those that only repeat it over many shapes.
declare -A sanitized_filter=(
  [gpu_attention]='*LastKeySeen*:*GatesItsResult*:*RepeatsItsBits*:*AnyNumber*:GpuQueryPasses*'
  [gpu_projection]='-*GpuPrefillModes*'
  [gpu_tier]='*EveryShape*'
  [gpu_decode]='GpuSampler.*-*WholeVocabulary*'
  [gpu_backend]='*Decode*kmix:*ExactLogits*kmix:*Decode*qwen3moe_mix'
)
# The races and stray accesses looked for are those of our kernels; cuBLAS's would take most of the time. What
# cuBLAS writes counts as written, so initcheck sees them all.
declare -A tool_options=([memcheck]='--kernel-regex kns=3apr' [racecheck]='--kernel-regex kns=3apr' [initcheck]='')

checks=(ready)
[[ $parts != *" tests "* ]] || for test in "${gpu_tests[@]}" cli; do checks+=("test $test"); done
[[ $parts != *" sanitizer "* ]] || for tool in "${tools[@]}"; do
  for test in "${sanitized[@]}"; do checks+=("$tool $test"); done
done
models=("$@")
if [[ $parts == *" parity "* ]]; then
  if [ ${#models[@]} = 0 ]; then
    for spec in ${APR_SYNTH:-qwen3-0.6b:Q4_K_M qwen2.5-1.5b:Q4_K_M:8}; do models+=("synth:$spec"); done
  fi
  for model in "${models[@]}"; do
    for mode in tensors default exact per-op; do checks+=("parity-$mode $model"); done
  done
fi

n_passed=0 n_failed=0 n_not_run=0 n_done=0
# report STATUS NAME SECONDS TEXT
report() {
  n_done=$((n_done + 1))
  case $1 in
    PASS) n_passed=$((n_passed + 1)) ;;
    FAIL) n_failed=$((n_failed + 1)) ;;
    *) n_not_run=$((n_not_run + 1)) ;;
  esac
  printf '[%*d/%d] %-7s %s (%d s)%s\n' ${#checks[@]} $n_done ${#checks[@]} "$1" "$2" "$3" "${4:+: $4}" |
    sed -E 's/^\[ +/[/'
}

# The log's line that says most.
last_words() { grep -E 'error:|FAILED|Failure|ERROR|failed' "$1" | head -n 1 | cut -c 1-200; }

check_ready() {
  "$build/apr" doctor --json > "$1" 2>&1 || return 1
  python3 - "$1" << 'PY'
import json, sys
cuda = json.load(open(sys.argv[1]))["cuda"]
print("; ".join(f"{d['name']}, {d['architecture']}" for d in cuda["devices"]) if cuda["ready"] else
      f"error: {cuda['reason']}; {cuda['remedy']}")
sys.exit(not cuda["ready"])
PY
}

# A skipped test is one whose model is not here.
test_words() {
  printf '%s tests' "$(sed -nE 's/^(\[  PASSED  \]|Ran) ([0-9]*) test.*/\2/p' "$1" | tail -n 1)"
  local n_skipped
  n_skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
  [ -z "$n_skipped" ] || printf ', %s skipped: %s' "$n_skipped" \
    "$(grep -m 1 -oE 'SKIPPED: .*' "$1" | cut -c 1-120)"
}

find_sanitizer() {
  local candidate
  for candidate in "${COMPUTE_SANITIZER:-}" "$(command -v compute-sanitizer || true)" \
    /usr/local/cuda*/bin/compute-sanitizer; do
    if [ -n "$candidate" ] && [ -x "$candidate" ]; then
      echo "$candidate"
      return
    fi
  done
}
sanitizer=$(find_sanitizer)

# run_sanitizer TOOL TEST LOG: 0 clean, 1 not, 2 could not be run.
run_sanitizer() {
  [ -n "$sanitizer" ] || { echo "compute-sanitizer is not here" > "$3"; return 2; }
  local options
  read -r -a options <<< "${tool_options[$1]}"
  timeout "$limit" "$sanitizer" --tool "$1" "${options[@]}" --error-exitcode 99 "$build/tests/$2_test" \
    --gtest_filter="${sanitized_filter[$2]:-*}" > "$3" 2>&1
  local status=$?
  grep -qE '(ERROR|RACECHECK) SUMMARY' "$3" || {
    [ $status = 124 ] && return 1  # the test runs, and too long
    return 2
  }
  return $((status != 0))
}

synthesise() {  # SPEC PATH LOG
  local name mix layers
  IFS=: read -r name mix layers <<< "$1"
  python3 tools/synth_gguf.py --model "$name" --mix "$mix" ${layers:+--layers "$layers"} --out "$2" > "$3" 2>&1
}

scratch=$(mktemp -d "${TMPDIR:-/tmp}/gpu-check.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
declare -A path_of=()
# The file of a model argument in $path, empty where it cannot be made; a synthesised one is made once.
resolve() {
  path=$1
  [[ $1 == synth:* ]] || return 0
  if [ -z "${path_of[$1]+x}" ]; then
    rm -f "$scratch"/*.gguf
    path_of[$1]="$scratch/$(tr -c 'A-Za-z0-9.\n' - <<< "${1#synth:}").gguf"
    synthesise "${1#synth:}" "${path_of[$1]}" "$logs/synth.log" || path_of[$1]=
  fi
  path=${path_of[$1]}
}

if [ -z "${APR_BUILD:-}" ]; then
  ensure_packages build test || exit 1
  find_cuda_options
  configure_and_build "$build" all -DCMAKE_BUILD_TYPE=Release "${cuda_options[@]}" || exit 1
fi

for check in "${checks[@]}"; do
  read -r kind subject <<< "$check"
  log=$logs/$(tr -c 'A-Za-z0-9._\n' - <<< "$check" | cut -c 1-100).log
  start=$SECONDS
  case $kind in
    ready)
      if words=$(check_ready "$log"); then report PASS "the GPU is ready" $((SECONDS - start)) "$words"; else
        report FAIL "the GPU is ready" $((SECONDS - start)) "${words:-$(last_words "$log")}"
        break
      fi ;;
    test)
      program=("$build/tests/${subject}_test")
      [ "$subject" != cli ] || program=(python3 tests/cli_on_gpu_test.py "$build/apr")
      if timeout "$limit" "${program[@]}" > "$log" 2>&1; then
        report PASS "$check" $((SECONDS - start)) "$(test_words "$log")"
      else
        report FAIL "$check" $((SECONDS - start)) "$(last_words "$log")"
      fi ;;
    memcheck | racecheck | initcheck)
      run_sanitizer "$kind" "$subject" "$log"
      case $? in
        0) report PASS "$check" $((SECONDS - start)) ;;
        1) report FAIL "$check" $((SECONDS - start)) "$(grep -E 'SUMMARY|=========' "$log" | tail -n 1)" ;;
        *) report "NOT RUN" "$check" $((SECONDS - start)) "$(tail -n 1 "$log" | cut -c 1-160)" ;;
      esac ;;
    parity-*)
      resolve "$subject"
      if [ -z "$path" ]; then
        report "NOT RUN" "$check" $((SECONDS - start)) "no model: $(tail -n 1 "$logs/synth.log")"
        continue
      fi
      case $kind in
        parity-tensors) options=(--tensors) ;;
        parity-default) options=(--lengths "$lengths") ;;
        parity-exact) options=(--lengths "$lengths" --exact) ;;
        parity-per-op) options=(--per-op) ;;
      esac
      if timeout "$limit" "$build/apr" parity "$path" --gpu "${options[@]}" > "$log" 2>&1; then
        report PASS "$check" $((SECONDS - start)) "$(grep -m 1 -E '^(logits|tensors) ' "$log")"
      else
        report FAIL "$check" $((SECONDS - start)) "$(last_words "$log")"
      fi ;;
  esac
done
echo "$n_passed passed, $n_failed failed, $n_not_run not run, of ${#checks[@]} checks; output in $logs"
[ $n_failed = 0 ] && [ $n_done = ${#checks[@]} ]
