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

given_mode=${CHASKI_SHIM:-}

# No programs but the test and cksum are started: for a thousand cases they would take twenty seconds.
one() {
  local program=$1 case=$2 base=${1##*/} status=0 modes sum mode= name said output line
  said=$work/$base.$case
  mapfile -t -s $((case + 1)) -n 1 name < "$work/$base.names"
  read -r -a modes <<< "${TEST_MODES:-}"
  if [ -z "$given_mode" ] && [ ${#modes[@]} -gt 0 ]; then
    sum=$(cksum <<< "${name[0]}")
    export CHASKI_SHIM=${modes[$((${sum%% *} % ${#modes[@]}))]}
  fi
  # The program over the shim; in the other program only cases that start chaski-shim read the mode.
  case $base in *shim*) mode=${CHASKI_SHIM:+ (CHASKI_SHIM=$CHASKI_SHIM)} ;; esac
  SECONDS=0
  { "$program" --first="$case" --last="$case" "${@:3}" > "$said" 2>&1 3<&- || status=$?; } 2> /dev/null
  [ $SECONDS -lt 10 ] || echo "$SECONDS s  ${name[0]}" >> "$work/slow"
  # If a case passes, only what it skipped is printed, without doctest's frame. If it fails, all its output is printed.
  # The last line comes from tests/main.cpp; it is missing if the case ended early.
  output=$(< "$said")
  if [ $status = 0 ] && [[ ${output##*$'\n'} == *' passed, 0 failed' ]]; then
    while IFS= read -r line; do
      [[ $line == '[doctest] '* || $line == *' passed, 0 failed' || $line != *[!=]* ]] || printf '%s\n' "$line"
    done <<< "$output"
    : > "$said.passed"
  else
    cat "$said"
    [ $status = 0 ] || echo "test case $case of $program ended with status $status"
    { grep -m 1 '^TEST CASE:' "$said" || echo "test case $case of $program"; } |
      sed "s/^/FAILED /; s/\$/$mode/" >> "$work/failed"
  fi
}
# Runs the cases that no other worker has taken. A file that is created with noclobber can be created once.
worker() {
  local program case
  while read -r -u 3 program case; do
    { set -C; : > "$work/${program##*/}.$case.taken"; } 2> /dev/null && { set +C; one "$program" "$case" "$@"; }
    set +C
  done 3< "$work/cases"
}
export -f one worker
export work given_mode
# The first programs' cases are spread over the first half of the last one's: they compute, and among the others are cases that wait.
spread=1
for program in "${programs[@]}"; do
  [ "$program" != "${programs[-1]}" ] || spread=2
  names="$work/$(basename "$program").names"  # from the third line on, and after them the number of cases
  "$program" --list-test-cases "$@" > "$names"
  cases=$(sed -n 's/.*passing the current filters: *//p' "$names")
  seq "${cases:-0}" | awk -v program="$program" -v of="${cases:-0}" -v spread=$spread '{ print spread * $1 / of, program, $1 }'
done | sort -s -g | cut -d' ' -f2- > "$work/cases"
total=$(wc -l < "$work/cases")
[ "$total" -gt 0 ] || { echo "no test case matches $*"; exit 1; }
jobs=${TEST_JOBS:-$(nproc)}
workers=$((jobs + jobs / 2))
# Not jobs of this shell, because these ignore Ctrl-C and so would the tests.
seq $workers | xargs -P $workers -I{} bash -c 'worker "$@"' worker "$@"
[ ! -e "$work/slow" ] || sort -rn "$work/slow" | head -n 5
[ ! -e "$work/failed" ] || sort "$work/failed"
passed=$(find "$work" -name '*.passed' | wc -l)
echo "$passed passed, $((total - passed)) failed"
[ "$passed" = "$total" ]
