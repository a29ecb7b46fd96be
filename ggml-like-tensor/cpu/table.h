// The kernels of one instruction set as a table. A file isa_*.cpp has only its Lanes, its flags
// (Makefile) and one call of this.
#pragma once
#include "ggml-like-tensor/cpu/attention.h"
#include "ggml-like-tensor/cpu/expert_matmul.h"
#include "ggml-like-tensor/cpu/matmul.h"
#include "ggml-like-tensor/cpu/norm.h"
#include "ggml-like-tensor/cpu/peak.h"
#include "ggml-like-tensor/cpu/rows.h"
#include "ggml-like-tensor/cpu/scan.h"
#include "ggml-like-tensor/cpu/sparse_attention.h"

namespace chaski {
namespace {

template <class Op, class V>
constexpr KernelEntry entry() {
  using Kernel = CpuKernel<Op, V>;
  return {
      [](const AnyOp& op, const OpArgs& a, int64_t first, int64_t last, const Scratch& scratch) {
        Kernel::run(*std::get_if<Op>(&op), a, first, last, scratch);
      },
      [](const AnyOp& op, const OpArgs& a) { return Kernel::units(*std::get_if<Op>(&op), a); },
      [](const AnyOp& op, const OpArgs& a) { return Kernel::grain(*std::get_if<Op>(&op), a); },
      [](const AnyOp& op, const OpArgs& a) { return Kernel::scratch(*std::get_if<Op>(&op), a); },
      [](const AnyOp& op, const OpArgs& a) {
        if constexpr (requires { &Kernel::shared; })
          return Kernel::shared(*std::get_if<Op>(&op), a);
        return size_t(0);
      },
  };
}

template <class V, class... Own>
struct Kernels {
  template <class Op>
  static constexpr KernelEntry own() {
    if constexpr (sizeof...(Own) == 0 || (std::is_same_v<Op, Own> || ...)) return entry<Op, V>();
    return {};
  }
  template <class... Op>
  static constexpr Backend over(OpList<Op...>) {
    return {V::kName, {own<Op>()...}, peak<V>};
  }
};
// If ops are named, only these have kernels: the ops that gain from these Lanes. backends.cpp takes
// the others from the instruction set below.
template <class V, class... Own>
constexpr Backend backend_of() {
  return Kernels<V, Own...>::over(Ops{});
}

}  // namespace
}  // namespace chaski
