// Which instruction sets are compiled in, and which of them this machine supports.
#include <cstdlib>
#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
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

#if defined(__x86_64__)
// A process on Linux must request permission to use tiles (Documentation/arch/x86/xstate.rst):
// arch_prctl's ARCH_REQ_XCOMP_PERM, for state component 18.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

bool runs_here([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  return Processor().runs(isa) && (isa != "amx" || may_use_tiles());
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
    const Backend& before = all.empty() ? own : all.back();
    for (int i = 0; i < Ops::kCount; ++i)
      if (!own.table[i].kernel) own.table[i] = before.table[i];
    for (int i = 0; i < kFormatCount; ++i) {
      FormatKernels& kernels = own.formats[i];
      const FormatKernels& others = before.formats[i];
      if (!kernels.tiles_times) kernels.tiles_times = others.tiles_times;
      if (!kernels.strips_times) kernels.strips_times = others.strips_times;
      if (!kernels.weigh_values) kernels.weigh_values = others.weigh_values;
      if (!kernels.peak) kernels.peak = others.peak;
      if (!kernels.tile_peak) kernels.tile_peak = others.tile_peak;
    }
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
  const std::string_view better = Processor().better_than(cpu_backends().back()->name);
  for (const Backend* compiled : kCompiled)
    if (compiled->name == better) return {};  // the system does not allow it
  return better;
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
