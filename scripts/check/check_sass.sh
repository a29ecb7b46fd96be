#!/usr/bin/env bash
# check_sass.sh [--write] CUBIN...: what nvcc made of the kernels in these cubins for sm_90, compared with the table sass.txt next to this script.
# A kernel of the table may not have more of anything, except loads before the wait, of which it may not have fewer. --write prints the lines of
# all kernels in the files instead, in the form of the table. --ready only says whether a comparison is possible here: it needs cuobjdump (CUDA
# toolkit) and the version of nvcc that the table names, because another version makes other instructions.
#
#   registers, stack   of a thread; stack: bytes of local memory, also for spilled registers
#   shared             bytes of static shared memory
#   loop               instructions of the smallest loop with a matrix instruction; 0: there is none
#   integer            those of them for the integer pipe
#   loads              from memory before the kernel waits for the previous one; -: it never waits
set -eu
table=$(dirname "$0")/sass.txt
CUOBJDUMP=${CUOBJDUMP:-cuobjdump}
if [ "${1:-}" = --ready ]; then
  want=$(sed -n 's/^#.*nvcc \([0-9.]*\), sm_90\.$/\1/p' "$table")
  have=$("${NVCC:-nvcc}" --version 2> /dev/null | sed -n 's/.*release \([0-9.]*\),.*/\1/p' || true)
  if [ "$have" != "$want" ]; then echo "SKIPPED: check_sass: the table is for nvcc $want, found ${have:-none}"; exit 1; fi
  if ! command -v "$CUOBJDUMP" > /dev/null; then echo "SKIPPED: check_sass: cuobjdump is not installed"; exit 1; fi
  exit 0
fi
write=0
if [ "${1:-}" = --write ]; then write=1; shift; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line a kernel: name registers stack shared loop integer loads
measure() {
  { "$CUOBJDUMP" -res-usage "$1"; "$CUOBJDUMP" -sass "$1"; } 2> /dev/null | awk '
    function hex(s,   i, n) { n = 0; s = tolower(s); for (i = 1; i <= length(s); ++i) n = 16 * n + index("0123456789abcdef", substr(s, i, 1)) - 1; return n }
    function close_kernel(   i, k, from, matrices, integer, best) {
      if (kernel == "" || n == 0) return
      best = 0; of_best = 0
      for (i = 1; i <= n; ++i) if (target[i] != "" && target[i] < at[i]) {
        matrices = integer = 0
        for (k = i; k > 0 && at[k] >= target[i]; --k) { matrices += matrix[k]; integer += whole[k] }
        if (matrices && (best == 0 || i - k < best)) { best = i - k; of_best = integer }
      }
      print kernel, resources[kernel], best, of_best, waited ? loads : "-"
      kernel = ""
    }
    /Function [^ :]+:$/ { name = $2; sub(/:$/, "", name); next }
    /REG:[0-9]+/ { r = s = h = 0
      for (i = 1; i <= NF; ++i) { split($i, p, ":"); if (p[1] == "REG") r = p[2]; if (p[1] == "STACK") s = p[2]; if (p[1] == "SHARED") h = p[2] }
      resources[name] = r " " s " " h; next }
    /Function : / { close_kernel(); kernel = $NF; n = loads = waited = 0; split("", target); next }
    /^[ \t]+\/\*[0-9a-f]+\*\// {
      line = $0; sub(/^[ \t]+\/\*/, "", line); address = line; sub(/\*\/.*/, "", address)
      sub(/^[0-9a-f]+\*\/[ \t]+/, "", line); sub(/;.*/, "", line); sub(/^@!?U?P[T0-9]+ /, "", line)
      op = line; sub(/[ .].*/, "", op)
      at[++n] = hex(address); matrix[n] = op ~ /MMA$/
      whole[n] = op ~ /^(LOP3|PRMT|SHF|IADD3|LEA|ISETP|SEL|VIADD|VIMNMX|IMNMX|POPC|BMSK|SGXT|PLOP3|I2FP|IABS)$/
      if (op == "BRA" && match(line, /0x[0-9a-f]+/)) target[n] = hex(substr(line, RSTART + 2, RLENGTH - 2))
      if (line ~ /ACQBULK/) waited = 1
      if (!waited && op == "LDG") ++loads }
    END { close_kernel() }'
}
# nvcc puts a number of its own into the names of kernels in anonymous namespaces.
for file; do measure "$file"; done | sed -E 's/^[^ ]*_GLOBAL__N__[0-9a-f]+_[0-9]+_[a-z_]+_cu_[0-9a-f]+_[0-9]+//' | sort > "$work/now"
if [ $write = 1 ]; then cat "$work/now"; exit 0; fi
awk '
  FNR == NR { if ($0 !~ /^#/ && NF == 7) { want[$1] = $0 } next }
  $1 in want {
    split(want[$1], w, " "); split("name registers stack shared loop integer loads", name, " "); ++seen
    for (i = 2; i <= 7; ++i)
      if (i < 7 ? $i + 0 > w[i] + 0 : $i + 0 < w[i] + 0 || ($i == "-") != (w[i] == "-"))
        { print "check_sass: " $1 ": " name[i] " is " $i ", expected " w[i] " or " (i < 7 ? "less" : "more"); bad = 1 } }
  END { for (k in want) ++all
        if (seen != all) { print "check_sass: " seen + 0 " kernels of the table were found, expected " all; bad = 1 }
        if (!bad) print "check_sass: " all " kernels have what the table allows"; exit bad }' "$table" "$work/now"
