#!/usr/bin/env bash
# make check: the rules that a compiler does not check.
#   1. includes follow the order of folders and sub-folders (HACKING.md, "The folders")
#   2. an object built with instruction-set flags has no weak symbol: the linker could use it on a machine without these instructions
#   3. every file is formatted as by clang-format (make format)
#   4. conditional compilation is used only in the files meant for it; -ffast-math is not used
#   5. main/flags/environment.h lists every environment variable that is read, and getenv() is called with the name itself
#   6. no source file has more than 600 lines
#   7. links and paths in the documents exist (scripts/check/check_links.py)
set -u
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
bad=0
found=$(mktemp)
trap 'rm -f "$found"' EXIT
say() { printf 'check: %s\n' "$*"; bad=1; }

# The folders in order, each with its sub-folders in order. A file may include its own sub-folder, those before it in its folder, and the
# folders after the colon. Other folders see only cuda/backend.h of cuda/, and only ggml-like-tensor/cpu/ itself may include its files. Two
# exceptions: quant/formats.h, the list of all formats, includes the sub-folders of quant/. The files of models/import itself open a model of
# any kind (import.cpp, look.cpp), so they include its sub-folders, which in turn read with its helpers (folder.h, json_file.h).
folders() {
  cat <<'END'
quant . own gguf packed encode:
ggml-like-tensor .: quant
cuda device . weights rows attention matmul draw backend: ggml-like-tensor quant
models . blocks heads arch import import/tokenizer import/hf import/gguf: ggml-like-tensor quant
engine machine text text/tokenizer text/jinja shelf pages passes grammar grammar/schema sampling/steps sampling session drafting requests conversation measure loadtest quantize: models ggml-like-tensor quant cuda
main terminal flags api serve commands .: engine
END
}
while read -r top rest; do
  grep -rnE '^[[:space:]]*#include "' "$top" --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' |
    awk -v top="$top" -v folders="${rest%%:*}" -v others="${rest#*:}" '
      BEGIN { n = split(folders, f, " "); for (i = 1; i <= n; ++i) rank[f[i] == "." ? top : top "/" f[i]] = i
              split(others, o, " "); for (i in o) allowed[o[i]] = 1 }
      function folder(path) { sub(/\/[^\/]*$/, "", path); return path }
      { file = $0; sub(/:.*/, "", file); path = $0; sub(/.*#include "/, "", path); sub(/".*/, "", path)
        from = path; sub(/\/.*/, "", from); a = folder(file); b = folder(path)
        if (from != top && !(from in allowed)) print file " includes " path ", " top " may include:" others
        else if (b == "ggml-like-tensor/cpu" && a != b) print file " includes " path ", which is private to ggml-like-tensor/cpu"
        else if (from == "cuda" && top != "cuda" && path != "cuda/backend.h") print file " includes " path ", but only cuda/backend.h is public"
        else if (from == top && n > 1 && a != b) {
          if (!(a in rank)) print file ": folder " a " is not in the list of scripts/check/check.sh"
          else if (!(b in rank)) print file ": folder " b " is not in the list of scripts/check/check.sh"
          else if (rank[b] > rank[a] && a != "models/import" && file != "quant/formats.h") print file " includes " path ", which comes later in the order of " top } }'
done < <(folders) > "$found"
while IFS= read -r line; do say "$line"; done < "$found"
# Includes of project files are paths from the root.
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
  say "conditional compilation outside lanes_*.h, cpu/backends.cpp, base/, cuda/device/launch.cuh and mma.cuh: $hit"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*if' quant ggml-like-tensor models engine main cuda --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh' |
         grep -vE '^(ggml-like-tensor/(base/|cpu/lanes_|cpu/backends\.cpp)|cuda/device/(launch|mma)\.cuh)')
if grep -nE -- '-ffast-math|-Ofast' Makefile | grep -v 'No -ffast-math'; then say "-ffast-math in the Makefile"; fi

while IFS=: read -r file line text; do
  name=$(sed -nE 's/.*getenv\("([A-Z0-9_]+)"\).*/\1/p' <<<"$text")
  if [ -z "$name" ]; then say "$file:$line: getenv() without a literal name cannot be listed in main/flags/environment.h: $text"
  elif ! grep -q "{\"$name\"," main/flags/environment.h; then say "$file:$line: $name is missing in main/flags/environment.h, expected an entry there"; fi
done < <(grep -rnoE 'getenv\([^)]*\)?' quant ggml-like-tensor models engine main cuda --include='*.h' --include='*.cpp' --include='*.cu' --include='*.cuh')

if ! command -v clang-format >/dev/null; then
  echo "SKIPPED: check: clang-format is not installed, so the format was not checked"
elif unformatted=$(git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format --dry-run 2>&1 | sed -n 's/^\([^:]*\):.*/\1/p' | sort -u) && [ -n "$unformatted" ]; then
  say "not formatted (run make format):" $unformatted
fi

while read -r lines file; do
  [ "$file" = total ] || [ "$lines" -le 600 ] || say "$file has $lines lines, expected at most 600"
done < <(git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' '*.py' '*.sh' | xargs wc -l)

if ! command -v python3 >/dev/null; then echo "SKIPPED: check: python3 is not installed, so the links of the documents were not checked"
elif ! broken=$(python3 scripts/check/check_links.py); then say "broken links:" $broken
fi

[ "$bad" = 0 ] && echo "check: includes, symbols, format, conditional compilation, environment variables, file sizes and links follow the rules"
exit "$bad"
