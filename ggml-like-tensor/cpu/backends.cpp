// Which instruction sets are compiled in, and which of them this machine supports.
#include <cstdlib>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/base/processor.h"

namespace chaski {

// The Makefile defines CHASKI_ISAS: ISA(name) for each instruction set that is compiled in, the
// best last.
#define ISA(name) extern const Backend kBackend_##name;
CHASKI_ISAS
#undef ISA

namespace {

constexpr const Backend* kCompiled[] = {
#define ISA(name) &kBackend_##name,
    CHASKI_ISAS
#undef ISA
};

bool runs_here([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  return Processor().runs(isa);
#elif defined(__aarch64__)
  // The compiler's flag for dot products also allows the other two (Makefile).
  constexpr unsigned long kNeeded = HWCAP_ASIMDDP | HWCAP_ATOMICS | HWCAP_ASIMDRDM;
  return isa != "neondot" || (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
#else
  return true;
#endif
}

// The instruction sets of this machine. A set without kernels of its own for an op or a format uses
// those of the set before it in this list. Sets that do not run here are skipped: there may be
// avx512 without avxvnni.
std::vector<Backend> of_this_machine() {
  std::vector<Backend> all;
  for (const Backend* compiled : kCompiled) {
    if (!runs_here(compiled->name)) continue;
    ENSURE(!all.empty() || compiled->table[0].kernel, "a partial instruction set comes first");
    Backend own = *compiled;
    for (int i = 0; i < Ops::kCount; ++i)
      if (!own.table[i].kernel) own.table[i] = all.back().table[i];
    for (int i = 0; i < kFormatCount; ++i)
      if (!own.formats[i].strips_times) own.formats[i] = all.back().formats[i];
    all.push_back(own);
  }
  for (Backend& backend : all)
    for (KernelEntry& entry : backend.table) entry.formats = backend.formats;
  return all;
}

}  // namespace

// Measured on Zen 4 (docs/performance.md). Zen 3 needs the requests; Intel's processors were not
// measured.
bool reads_ahead() {
#if defined(__x86_64__)
  static const bool zen4 = Processor().zen4();
  return zen4;
#else
  return false;
#endif
}

std::string_view better_isa() {
#if defined(__x86_64__)
  return Processor().better_than(cpu_backends().back()->name);
#else
  return {};
#endif
}

std::vector<const Backend*> cpu_backends() {
  static const std::vector<Backend> here = of_this_machine();
  std::vector<const Backend*> all;
  for (const Backend& backend : here) all.push_back(&backend);
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
