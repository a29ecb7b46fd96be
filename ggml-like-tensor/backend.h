// A backend is one table indexed by op.
#pragma once
#include <string_view>
#include <vector>

#include "ggml-like-tensor/ops.h"

namespace chaski {

// Work is handed out in units (a strip of 16 outputs, a row, a head): run() does units [first,
// last). What a unit computes does not depend on who does it or in which order.
constexpr int kSharedCounters = 4096;
struct Scratch {
  std::byte* own = nullptr;  // this thread's
  // kSharedCounters of them for all threads, all zero when a step begins and when it ends
  uint32_t* counters = nullptr;
  std::byte* shared = nullptr;  // for all threads
};
struct KernelEntry {
  void (*run)(const AnyOp&, const OpArgs&, int64_t first, int64_t last, const Scratch&) = nullptr;
  int64_t (*units)(const AnyOp&, const OpArgs&) = nullptr;
  int64_t (*grain)(const AnyOp&, const OpArgs&) = nullptr;   // units worth a trip to the counter
  size_t (*scratch)(const AnyOp&, const OpArgs&) = nullptr;  // bytes a thread needs
  size_t (*shared)(const AnyOp&, const OpArgs&) = nullptr;   // bytes they need together
};

struct Backend {
  const char* name;
  KernelEntry table[Ops::kCount];
  // Multiplies as matmuls of that format do, from registers: operations done.
  int64_t (*peak)(Format format, int64_t rounds) = nullptr;
};

// Backends of the instruction sets compiled in that this machine has, best last.
// CHASKI_ISA=scalar|avx2|avx512|avx512vnni|avx512vbmi|neon chooses by name: Error(usage) for an
// unknown or absent one.
std::vector<const Backend*> cpu_backends();
const Backend& cpu_backend();

}  // namespace chaski
