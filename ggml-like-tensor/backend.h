// A backend is a table of kernels, indexed by op.
#pragma once
#include <string_view>
#include <vector>

#include "ggml-like-tensor/ops.h"

namespace chaski {

// Work is cut into units: a strip of 16 outputs, a row, a head. run() computes units [first, last).
// The result of a unit does not depend on the thread or on the order of units.
constexpr int kSharedCounters = 4096;
struct FormatKernels;
struct Scratch {
  std::byte* own = nullptr;  // of this thread
  // kSharedCounters counters for all threads; all are zero when a step begins and when it ends
  uint32_t* counters = nullptr;
  std::byte* shared = nullptr;             // for all threads
  const FormatKernels* formats = nullptr;  // of the backend, set by KernelEntry::run()
};
struct KernelEntry {
  void (*kernel)(const AnyOp&, const OpArgs&, int64_t first, int64_t last,
                 const Scratch&) = nullptr;
  int64_t (*units)(const AnyOp&, const OpArgs&) = nullptr;
  int64_t (*grain)(const AnyOp&, const OpArgs&) = nullptr;   // units worth taking at once
  size_t (*scratch)(const AnyOp&, const OpArgs&) = nullptr;  // bytes each thread needs
  size_t (*shared)(const AnyOp&, const OpArgs&) = nullptr;   // bytes all threads need together
  const FormatKernels* formats = nullptr;                    // of the backend

  void run(const AnyOp& op, const OpArgs& a, int64_t first, int64_t last, Scratch scratch) const {
    scratch.formats = formats;
    kernel(op, a, first, last, scratch);
  }
};

struct GroupInput;
struct HeadPages;
struct Weighing;
// The kernels of one format, which the kernels of ops call for strips of weights and for keys and
// values. Instruction sets that differ only in their products of bytes share the kernels of ops.
struct FormatKernels {
  using Times = void(const std::byte* strips, size_t bytes, int n_strips, int64_t from, int64_t to,
                     const GroupInput* groups, int n_groups, float* sums);
  // Strips of a weight or of keys times activations (cpu/strip.h).
  Times* strips_times = nullptr;
  // The same for strips of weights (cpu/tiles.h), faster if the first group is whole. Null without
  // matrix tiles.
  Times* tiles_times = nullptr;
  // Sums of values (cpu/values.h), for the formats of keys and values.
  void (*weigh_values)(const HeadPages&, const Weighing&, int queries) = nullptr;
  // Multiplies from registers as strips_times() does. Returns the number of operations.
  int64_t (*peak)(int64_t rounds) = nullptr;
  // The same as tiles_times() does.
  int64_t (*tile_peak)(int64_t rounds) = nullptr;
};

struct Backend {
  const char* name;
  KernelEntry table[Ops::kCount];
  FormatKernels formats[kFormatCount];  // by format
};

// The backends of the compiled instruction sets that this machine supports, best last.
// CHASKI_ISA=scalar|avx2|avxvnni|avx512|avx512vnni|avx512vbmi|amx|neon|neondot chooses one by
// name. Throws Error(usage) if that one is unknown or not supported.
std::vector<const Backend*> cpu_backends();
const Backend& cpu_backend();
// The best instruction set of this machine, if chaski has kernels for it and this program was built
// without them; otherwise "".
std::string_view better_isa();

}  // namespace chaski
