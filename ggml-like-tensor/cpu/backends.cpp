// Which instruction sets are compiled in, and which of them this machine supports.
#include <cstdlib>

#include "ggml-like-tensor/backend.h"

namespace chaski {

extern const Backend kBackend_scalar;
#if defined(__x86_64__)
extern const Backend kBackend_avx2, kBackend_avx512, kBackend_avx512vnni, kBackend_avx512vbmi;
#elif defined(__aarch64__)
extern const Backend kBackend_neon;
#endif

namespace {

// Fills kernels that `own` does not have from the instruction set below.
[[maybe_unused]] Backend over(const Backend& below, Backend own) {
  for (int i = 0; i < Ops::kCount; ++i)
    if (!own.table[i].run) own.table[i] = below.table[i];
  return own;
}

}  // namespace

std::vector<const Backend*> cpu_backends() {
  std::vector<const Backend*> all{&kBackend_scalar};
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq");
  if (avx2) all.push_back(&kBackend_avx2);
  if (avx512) all.push_back(&kBackend_avx512);
  static const Backend with_vnni = over(kBackend_avx512, kBackend_avx512vnni),
                       with_vbmi = over(with_vnni, kBackend_avx512vbmi);
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (vnni) all.push_back(&with_vnni);
  if (vnni && __builtin_cpu_supports("avx512vbmi")) all.push_back(&with_vbmi);
#elif defined(__aarch64__)
  all.push_back(&kBackend_neon);
#endif
  return all;
}

const Backend& cpu_backend() {
  const std::vector<const Backend*> all = cpu_backends();
  const char* wanted = std::getenv("CHASKI_ISA");
  if (!wanted || !*wanted) return *all.back();
  std::string names;
  for (const Backend* b : all) {
    if (std::string_view(b->name) == wanted) return *b;
    names += (names.empty() ? "" : ", ") + std::string(b->name);
  }
  fail(Exit::usage, "CHASKI_ISA is {}, expected one of {}", escaped(wanted), names);
}

}  // namespace chaski
