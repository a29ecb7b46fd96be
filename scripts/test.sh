#!/usr/bin/env bash
# test.sh TESTS ARGUMENT...: the test cases of a doctest program, each in a process of its own, as many at a time as there are cores (or
# TEST_JOBS). What a case has to say comes out when it ends; the last line counts. Ends with 1 if a case failed, crashed or was killed.
set -u
tests=$1
shift
for argument in "$@"; do
  case $argument in -l* | --list* | -h* | --help* | -c | --count | -f=* | --first=*) exec "$tests" "$@" ;; esac
done
total=$("$tests" --count "$@" | sed -n 's/.*passing the current filters: *//p')
[ "${total:-0}" -gt 0 ] || { echo "no test case matches $*"; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

one() {
  local said="$work/$1"
  local status=0
  { "$tests" --first="$1" --last="$1" "${@:2}" > "$said" 2>&1 || status=$?; } 2> /dev/null
  # A case that passes says what it skipped, and nothing of doctest's frame; of one that fails everything is shown.
  # Its last line, from tests/main.cpp, is missing if it was cut off.
  if [ $status = 0 ] && tail -n 1 "$said" | grep -q ' passed, 0 failed$'; then
    grep -vE '^\[doctest\] |^=+$|^[0-9]+ passed, 0 failed$|^$' "$said"
    : > "$work/passed.$1"
  else
    cat "$said"
    [ $status = 0 ] || echo "test case $1 of $total ended with status $status"
  fi
}
export -f one
export tests work total
seq "$total" | xargs -P "${TEST_JOBS:-$(nproc)}" -I{} bash -c 'one "$@"' one {} "$@"
passed=$(find "$work" -name 'passed.*' | wc -l)
echo "$passed passed, $((total - passed)) failed"
[ "$passed" = "$total" ]
