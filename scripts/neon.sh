#!/usr/bin/env bash
# The op sweep on AArch64: cross-compiled, run under qemu. Needs g++-aarch64-linux-gnu and qemu-user-static; skips visibly without.
# Only what the kernels need is built; Unicode tables (utf8proc) are for error lines and stay unresolved.
set -eu
cd "$(dirname "$0")/.."
for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v "$tool" >/dev/null || { echo "SKIPPED: neon: $tool is not installed"; exit 0; }
done
out=build/neon
mkdir -p "$out"
for source in quant/format quant/encode quant/random ggml-like-tensor/ops/kv_write ggml-like-tensor/rope_spec \
              ggml-like-tensor/cpu/backends ggml-like-tensor/cpu/isa_scalar ggml-like-tensor/cpu/isa_neon \
              ggml-like-tensor/file/model_source ggml-like-tensor/base/error tests/op_test tests/main; do
  echo "  CXX $source.cpp (aarch64)"
  aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -I. -idirafter /usr/include \
    -DFMT_HEADER_ONLY -c "$source.cpp" -o "$out/$(tr / _ <<<"$source").o"
done
aarch64-linux-gnu-g++ -static "$out"/*.o -Wl,--unresolved-symbols=ignore-all -pthread -o "$out/op"
qemu-aarch64-static "$out/op"
