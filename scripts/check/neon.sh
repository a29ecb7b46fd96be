#!/usr/bin/env bash
# Runs the op sweep on AArch64: cross-compiled, under qemu. Needs g++-aarch64-linux-gnu and qemu-user-static; without them it is skipped
# with a message. Only what the kernels need is built. utf8proc is left out; only error messages with text use it.
set -eu
cd "$(dirname "$0")/../.."
for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: neon: $tool is not installed"; exit 0; }
done
out=build/neon
rm -rf "$out"
mkdir -p "$out"
compile() {
  echo "  CXX $1 (aarch64)"
  case "$1" in *isa_neondot*) flags=-march=armv8.2-a+dotprod ;; *) flags= ;; esac
  # shellcheck disable=SC2086  # no flag or one
  aarch64-linux-gnu-g++ $flags -std=c++20 -O2 -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -I. "-DCHASKI_ISAS=ISA(scalar) ISA(neon) ISA(neondot)" -idirafter /usr/include \
    -DFMT_HEADER_ONLY -c "$1" -o "$out/$(tr / _ <<<"${1%.cpp}").o"
}
export -f compile
export out
# One unit for all formats and one for the other parts, as in the Makefile: their files read the same headers.
unit() { printf '#include "%s"\n' "${@:2}" > "$out/$1.cpp"; }
unit quant quant/*.cpp quant/*/*.cpp
unit parts ggml-like-tensor/base/{control_groups,error,memory,nearest}.cpp ggml-like-tensor/file/{model_source,chunks}.cpp ggml-like-tensor/ops/*.cpp \
  ggml-like-tensor/{rope_spec,state_layout,reading}.cpp
printf '%s\n' ggml-like-tensor/cpu/{isa_neon,isa_neondot,isa_scalar,backends}.cpp tests/tensor/op_test.cpp "$out"/{quant,parts}.cpp tests/main.cpp |
  xargs -P "$(nproc)" -I{} bash -euc 'compile {}'
aarch64-linux-gnu-g++ -static "$out"/*.o -Wl,--defsym=utf8proc_iterate=0 -pthread -o "$out/op"
printf '#!/bin/sh\nexec qemu-aarch64-static %s/op "$@"\n' "$out" > "$out/run"
chmod +x "$out/run"
scripts/check/test.sh "$out/run" --
