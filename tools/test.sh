#!/usr/bin/env bash
# Every test there is, with its own set-up: format, warnings, ctest, a sanitizer build, a minute of each fuzz
# target; ends with what ran, what was skipped and why. Exit 0 only if nothing failed.
#   APR_REAL_MODEL=1     also fetch a real model (0.5 GB, PyPI) and run the tests that need it
#   APR_FUZZ_SECONDS=60  how long each fuzz target runs
#   APR_SKIP="sanitize fuzz"  leaves these stages out, which the summary then says
# usage: bash tools/test.sh
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. tools/setup.sh
results=build/test-results
rm -rf $results && mkdir -p $results

# record NAME passed|failed|skipped SECONDS [REASON]: one line of the summary.
record() { printf '%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "${4:-}" >> $results/checks.tsv; }

# check NAME COMMAND...: runs one step, announces and records it; answers the command's status.
check() {
  local name=$1 start=$SECONDS status
  shift
  say "" "== $name"
  "$@"
  status=$?
  if [ $status = 0 ]; then record "$name" passed $((SECONDS - start)); else
    record "$name" failed $((SECONDS - start)) "exit $status"
  fi
  return $status
}

check_format() {
  local target=build/clang-format
  local program=$target/clang_format/data/bin/clang-format
  [ -x $program ] ||
    logged build/setup/clang-format.log python3 -m pip install -q --disable-pip-version-check \
      --no-deps --target $target clang-format==14.0.6 || return 1
  local output
  output=$(find include src kernels tests tools -regex '.*\.\(h\|cpp\|cuh\|cu\)' \
    -exec $program --dry-run --Werror {} + 2>&1) && return 0
  say "not as .clang-format wants it; '$program -i FILE' formats:"
  { grep ' error: ' <<< "$output" || echo "$output"; } | sed 's/:[0-9].* error: .*//' | sort -u >&2
  return 1
}

fetch_real_model() {
  local model=build/models/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf
  mkdir -p build/models
  logged build/setup/real-model.log bash tools/fetch_qwen_coder.sh $model &&
    export APR_REAL_MODEL_PATH="$PWD/$model"
}

# run_ctest DIR NAME OPTIONS...: tests of one build; the summary reads their own results from NAME.xml.
run_ctest() {
  local dir=$1 name=$2
  shift 2
  say "" "== ctest $name"
  ctest --test-dir "$dir" -j "$(nproc)" --output-on-failure --test-output-size-passed 20000 \
    --output-junit "$PWD/$results/$name.xml" "$@"
  [ -s "$results/$name.xml" ] || record "ctest $name" failed 0 "ctest wrote no result"
}

# Runs one fuzz target on a copy of its corpus, so that finds do not land in the tree.
run_fuzz_target() {
  local target=$1 seconds=$2 name start=$SECONDS
  name=$(basename "$target")
  local work=build-sanitize/runs/$name
  rm -rf "$work" && mkdir -p "$work/corpus" "$work/found"
  cp -r "tests/fuzz/corpus/$name/." "$work/corpus" || say "WARNING: $name starts without a corpus"
  local dictionary=tests/fuzz/${name%_fuzz}.dict options=()
  [ ! -f "$dictionary" ] || options+=("-dict=$dictionary")
  if "$target" "${options[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$work/found/" "$work/corpus" > "$work/log" 2>&1; then
    record "fuzz $name" passed $((SECONDS - start)) \
      "$(awk '/stat::number_of_executed_units/ { print $2 " inputs" }' "$work/log")"
  else
    say "FAILED: fuzz $name; input in $work/found, log in $work/log"
    tail -n 40 "$work/log" >&2
    record "fuzz $name" failed $((SECONDS - start)) "see $work"
  fi
}

run_fuzz_targets() {
  local target n_targets=0
  for target in $(find build-sanitize/tests/fuzz -type f -executable -name '*_fuzz' | sort); do
    say "== fuzz $(basename "$target")"
    run_fuzz_target "$target" "${APR_FUZZ_SECONDS:-60}" &
    n_targets=$((n_targets + 1))
  done
  wait
  [ $n_targets != 0 ] || record "fuzz" failed 0 "the build has no *_fuzz program"
}

if ! check "set-up" ensure_packages build test; then
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
fi
find_cuda_options

check "clang-format" check_format
if [ "${APR_REAL_MODEL:-0}" = 1 ]; then
  check "real model" fetch_real_model
elif [ -z "${APR_REAL_MODEL_PATH:-}" ]; then
  record "real model" skipped 0 "APR_REAL_MODEL=1 is not set; tests with a real model skip"
fi
if check "build, warnings are errors" configure_and_build build-test all \
  -DCMAKE_BUILD_TYPE=Release -DAPR_WERROR=ON -DAPR_UNITY=ON "${cuda_options[@]}"; then
  run_ctest build-test release
fi
# A subset (tests/CMakeLists.txt): the real model, long prompts and the wider fixtures take sanitizers
# many minutes and walk the same code as what is left.
not_sanitized='ChunkSizes|LogitsAre|ReferenceKernelsAgree|HybridState|Chats|Q8_0|Q4_K_M|float|hot|iqmix|ManyExperts|LayersInTheTypes|APlantedFault|GateProbeOfEach'
skips() { [[ " ${APR_SKIP:-} " == *" $1 "* ]]; }
sanitized_targets=
skips sanitize || sanitized_targets=apr_sanitized_tests
skips fuzz || sanitized_targets+=" tests/fuzz/all"
sanitized_build=1
if [ -n "$sanitized_targets" ]; then
  # One build for both: clang's sanitizers, and the counters that the fuzz targets need.
  check "build with ASan and UBSan" configure_and_build build-sanitize "$sanitized_targets" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1" -DAPR_FUZZ=ON -DAPR_UNITY=ON \
    -DAPR_CUDA=OFF -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++
  sanitized_build=$?
fi
if skips sanitize; then
  record "ASan and UBSan" skipped 0 "APR_SKIP names it"
elif [ $sanitized_build = 0 ]; then
  (unset APR_REAL_MODEL_PATH && run_ctest build-sanitize sanitize -L sanitize -E "$not_sanitized")
fi
if skips fuzz; then
  record "fuzz targets" skipped 0 "APR_SKIP names it"
elif [ $sanitized_build = 0 ]; then
  run_fuzz_targets
fi

say "" "== summary, after $SECONDS s"
exec python3 tools/test_summary.py $results
