#!/usr/bin/env bash
# make fuzz: builds the targets of tests/fuzz and runs each for FUZZ_SECONDS (60), two at a time. Inputs are made from the seeds in
# tests/fuzz/corpus and those found by earlier runs (build/fuzz/corpus). With FUZZ_SEED=N (1 or more), earlier runs are not used, and the
# choices of the fuzzer are mostly the same in each run. Ends with an error if there was a fault; its input is kept in build/fuzz.
set -eu
cd "$(dirname "$0")/../.."
seconds=${FUZZ_SECONDS:-60}
cxx=${FUZZ_CXX:-}
if [ -z "$cxx" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
   $cxx -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - 2>/dev/null; then
  echo "SKIPPED: make fuzz needs clang with libFuzzer (Debian: clang-14 and libclang-rt-14-dev)"
  exit 0
fi
make -j2 FUZZ_CXX="$cxx" fuzz-binaries

run() {
  local seeds=tests/fuzz/corpus/$1 found=build/fuzz/corpus/$1${FUZZ_SEED:+-$FUZZ_SEED} log=build/fuzz/$1.log
  [ -z "${FUZZ_SEED-}" ] || rm -rf "$found"
  mkdir -p "$found"
  # An input of 64 KB must not need an allocation of more than 64 MB, or more than 512 MB in all. AddressSanitizer keeps 16 MB of freed memory
  # instead of 256, which would be half of the limit.
  if ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}quarantine_size_mb=16 build/fuzz/"$1" -seed="${FUZZ_SEED:-0}" -max_total_time="$seconds" -max_len=65536 -timeout=10 \
       -malloc_limit_mb=64 -rss_limit_mb=512 -print_final_stats=1 -artifact_prefix=build/fuzz/"$1"- "$found" "$seeds" >"$log" 2>&1; then
    echo "fuzz: $1: $(grep -oE 'number_of_executed_units: *[0-9]+' "$log" | grep -oE '[0-9]+') inputs in ${seconds} s, no fault"
  else
    grep -m 1 -A 40 -E 'ERROR|runtime error|does not hold' "$log" || tail -n 60 "$log"
    echo "fuzz: $1: FAULT; the input is $(grep -oE 'build/fuzz/[^ ]*$' "$log" | tail -n 1), the whole log $log"
    return 1
  fi
}
export -f run
export seconds
printf '%s\n' "$@" | xargs -P 2 -I{} bash -c 'run {}'
