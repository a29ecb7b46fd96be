#!/usr/bin/env bash
# test.sh PROGRAM... -- ARGUMENT...: runs the test cases of doctest programs, each in its own process. Three run at a time for two cores,
# because a third of their time is waiting; TEST_JOBS is used instead of the number of cores. The output of a case is printed when it ends.
# The last lines name the slowest cases (of 10 s or more) and the failed ones, and count all. The exit status is 1 if a case failed, crashed
# or was killed. TEST_MODES is a list of values of CHASKI_SHIM (tests/cuda_shim/modes.h); if CHASKI_SHIM is not set, each case gets one of
# them by its name, so that other cases do not change it.
set -u
programs=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do programs+=("$1"); shift; done
shift
for argument in "$@"; do
  case $argument in
    -l* | --list* | -h* | --help* | -c | --count | -f=* | --first=*)
      for program in "${programs[@]}"; do "$program" "$@"; done
      exit ;;
  esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

one() {
  local program=$1 case=$2
  local said status=0 modes sum mode= name
  said="$work/$(basename "$program").$case"
  name=$(sed -n "$((case + 2))p" "$work/$(basename "$program").names")
  read -r -a modes <<< "${TEST_MODES:-}"
  if [ -z "${CHASKI_SHIM:-}" ] && [ ${#modes[@]} -gt 0 ]; then
    sum=$(cksum <<< "$name")
    export CHASKI_SHIM=${modes[$((${sum%% *} % ${#modes[@]}))]}
  fi
  # The program over the shim; in the other program only cases that start chaski-shim read the mode.
  case $(basename "$program") in *shim*) mode=${CHASKI_SHIM:+ (CHASKI_SHIM=$CHASKI_SHIM)} ;; esac
  { "$program" --first="$case" --last="$case" "${@:3}" > "$said" 2>&1 || status=$?; } 2> /dev/null
  [ $SECONDS -lt 10 ] || echo "$SECONDS s  $name" >> "$work/slow"  # SECONDS counts from the start of this shell
  # If a case passes, only what it skipped is printed, without doctest's frame. If it fails, all its output is printed.
  # The last line comes from tests/main.cpp; it is missing if the case ended early.
  if [ $status = 0 ] && tail -n 1 "$said" | grep -q ' passed, 0 failed$'; then
    grep -vE '^\[doctest\] |^=+$|^[0-9]+ passed, 0 failed$|^$' "$said"
    : > "$said.passed"
  else
    cat "$said"
    [ $status = 0 ] || echo "test case $case of $program ended with status $status"
    { grep -m 1 '^TEST CASE:' "$said" || echo "test case $case of $program"; } |
      sed "s/^/FAILED /; s/\$/$mode/" >> "$work/failed"
  fi
}
export -f one
export work
total=0
for program in "${programs[@]}"; do
  names="$work/$(basename "$program").names"  # from the third line on, and after them the number of cases
  "$program" --list-test-cases "$@" > "$names"
  cases=$(sed -n 's/.*passing the current filters: *//p' "$names")
  total=$((total + ${cases:-0}))
  seq -f "$program %g" "${cases:-0}"
done > "$work/cases"
[ "$total" -gt 0 ] || { echo "no test case matches $*"; exit 1; }
jobs=${TEST_JOBS:-$(nproc)}
xargs -P $((jobs + jobs / 2)) -L 1 bash -c 'one "${@: -2}" "${@:1:$#-2}"' one "$@" < "$work/cases"
[ ! -e "$work/slow" ] || sort -rn "$work/slow" | head -n 5
[ ! -e "$work/failed" ] || sort "$work/failed"
passed=$(find "$work" -name '*.passed' | wc -l)
echo "$passed passed, $((total - passed)) failed"
[ "$passed" = "$total" ]
