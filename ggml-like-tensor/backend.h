// A backend is a table of kernels, indexed by op.
#pragma once
#include <string_view>
#include <vector>

#include "ggml-like-tensor/ops.h"

namespace chaski {

// Work is cut into units: a strip of 16 outputs, a row, a head. run() computes units [first, last).
// The result of a unit does not depend on the thread or on the order of units.
constexpr int kSharedCounters = 4096;
struct Scratch {
  std::byte* own = nullptr;  // of this thread
  // kSharedCounters counters for all threads; all are zero when a step begins and when it ends
  uint32_t* counters = nullptr;
  std::byte* shared = nullptr;  // for all threads
};
struct KernelEntry {
  void (*run)(const AnyOp&, const OpArgs&, int64_t first, int64_t last, const Scratch&) = nullptr;
  int64_t (*units)(const AnyOp&, const OpArgs&) = nullptr;
  int64_t (*grain)(const AnyOp&, const OpArgs&) = nullptr;   // units worth taking at once
  size_t (*scratch)(const AnyOp&, const OpArgs&) = nullptr;  // bytes each thread needs
  size_t (*shared)(const AnyOp&, const OpArgs&) = nullptr;   // bytes all threads need together
};

struct Backend {
  const char* name;
  KernelEntry table[Ops::kCount];
  // Multiplies from registers as the matmuls of this format do. Returns the number of operations.
  int64_t (*peak)(Format format, int64_t rounds) = nullptr;
};

// The backends of the compiled instruction sets that this machine supports, best last.
// CHASKI_ISA=scalar|avx2|avxvnni|avx512|avx512vnni|avx512vbmi|neon|neondot chooses one by name.
// Throws Error(usage) if that one is unknown or not supported.
std::vector<const Backend*> cpu_backends();
const Backend& cpu_backend();
// The best instruction set of this machine, if chaski has kernels for it and this program was built
// without them; otherwise "".
std::string_view better_isa();

}  // namespace chaski
