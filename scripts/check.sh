#!/usr/bin/env bash
# make check: the rules that a compiler does not know.
#   1. who may include whom (HACKING.md, the picture of the layers)
#   2. no weak symbol in an object built with instruction-set flags: the linker could pick it for a machine that lacks them
#   3. every file as clang-format writes it (make format)
#   4. no conditional compilation outside the places meant for it, no -ffast-math
#   5. every variable of the environment that is read stands in main/environment.h, and every file says which it reads
set -u
cd "$(dirname "$0")/.."
build=${BUILD:-build}
bad=0
say() { printf 'check: %s\n' "$*"; bad=1; }

# folder -> folders it may include from
allowed() {
  case "$1" in
    quant)            echo quant ;;
    ggml-like-tensor) echo ggml-like-tensor quant ;;
    cuda)             echo cuda ggml-like-tensor quant ;;
    models)           echo models ggml-like-tensor quant ;;
    engine)           echo engine models ggml-like-tensor quant cuda ;;
    main)             echo main engine ;;
  esac
}
for room in quant ggml-like-tensor cuda models engine main; do
  [ -d "$room" ] || continue
  while IFS=: read -r file line text; do
    path=$(sed -E 's/.*#include "([^"]+)".*/\1/' <<<"$text")
    from=${path%%/*}
    grep -qw -- "$from" <<<"$(allowed "$room")" || say "$file:$line includes $path, $room may include: $(allowed "$room")"
    case "$path" in
      ggml-like-tensor/cpu/*) case "$file" in ggml-like-tensor/cpu/*) ;; *) say "$file:$line includes $path, private to ggml-like-tensor/cpu" ;; esac ;;
      cuda/*) [ "$room" = cuda ] || [ "$path" = cuda/backend.h ] || say "$file:$line includes $path, only cuda/backend.h is public" ;;
    esac
  done < <(grep -rnE '^[[:space:]]*#include "' "$room" --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh')
done
# A name under the project's roof must be a path from the root.
while IFS=: read -r file line text; do
  say "$file:$line: include paths start at the root: $text"
done < <(grep -rnE '^[[:space:]]*#include "[^/"]+"' quant ggml-like-tensor models engine main cuda tests --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' 2>/dev/null)

for object in "$build"/ggml-like-tensor/cpu/isa_*.o; do
  case "$object" in *isa_scalar.o) continue ;; esac
  [ -f "$object" ] || continue
  leaked=$(nm -C "$object" | grep -E ' [WVu] ')
  [ -z "$leaked" ] || say "$object leaks weak symbols: $leaked"
done

while IFS= read -r hit; do
  say "conditional compilation outside lanes_*.h, cpu/backends.cpp, base/, cuda/launch.cuh and mma.cuh: $hit"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*if' quant ggml-like-tensor models engine main cuda --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' |
         grep -vE '^(ggml-like-tensor/(base/|cpu/lanes_|cpu/backends\.cpp)|cuda/(launch|mma)\.cuh)')
if grep -nE -- '-ffast-math|-Ofast' Makefile | grep -v 'No -ffast-math'; then say "-ffast-math in the Makefile"; fi

while IFS=: read -r file line text; do
  name=$(sed -nE 's/.*getenv\("([A-Z0-9_]+)"\).*/\1/p' <<<"$text")
  if [ -z "$name" ]; then say "$file:$line: getenv() of what is no name, so nobody can list it: $text"
  elif ! grep -q "{\"$name\"," main/environment.h; then say "$file:$line: $name is missing in main/environment.h"; fi
done < <(grep -rnoE 'getenv\([^)]*\)?' quant ggml-like-tensor models engine main cuda --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh')

if ! command -v clang-format >/dev/null; then
  echo "SKIPPED: check: clang-format is not installed, so the format was not looked at"
elif unformatted=$(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run 2>&1 | sed -n 's/^\([^:]*\):.*/\1/p' | sort -u) && [ -n "$unformatted" ]; then
  say "not as make format writes it:" $unformatted
fi

[ "$bad" = 0 ] && echo "check: include rule, symbols, format, conditional compilation and environment are as they should be"
exit "$bad"
