// The kernels of one instruction set as a table: an isa_*.cpp is its Lanes, its flags (Makefile)
// and one call of this.
#pragma once
#include "ggml-like-tensor/backend.h"
#include "ggml-like-tensor/cpu/attention.h"
#include "ggml-like-tensor/cpu/matmul.h"
#include "ggml-like-tensor/cpu/norm.h"
#include "ggml-like-tensor/cpu/peak.h"
#include "ggml-like-tensor/cpu/rows.h"

namespace chaski {
namespace {

template <class Op, template <class> class Kernel, class V>
constexpr KernelEntry entry() {
  return {
      [](const AnyOp& op, const OpArgs& a, int64_t first, int64_t last, const Scratch& scratch) {
        Kernel<V>::run(*std::get_if<Op>(&op), a, first, last, scratch);
      },
      [](const AnyOp& op, const OpArgs& a) { return Kernel<V>::units(*std::get_if<Op>(&op), a); },
      [](const AnyOp& op, const OpArgs& a) { return Kernel<V>::grain(*std::get_if<Op>(&op), a); },
      [](const AnyOp& op, const OpArgs& a) { return Kernel<V>::scratch(*std::get_if<Op>(&op), a); },
      [](const AnyOp& op, const OpArgs& a) {
        if constexpr (requires { &Kernel<V>::shared; })
          return Kernel<V>::shared(*std::get_if<Op>(&op), a);
        return size_t(0);
      },
  };
}

// In the order of Ops.
template <class V>
constexpr Backend backend_of() {
  return {V::kName,
          {entry<GetRows, GetRowsKernel, V>(), entry<TakeRows, TakeRowsKernel, V>(),
           entry<MatMul, MatMulKernel, V>(), entry<GatedMatMul, GatedMatMulKernel, V>(),
           entry<Norm, NormKernel, V>(), entry<Rope, RopeKernel, V>(),
           entry<KvWrite, KvWriteKernel, V>(), entry<Attention, AttentionKernel, V>(),
           entry<Binary, BinaryKernel, V>(), entry<Unary, UnaryKernel, V>(),
           entry<SoftMax, SoftMaxKernel, V>(), entry<QuantizeActs, QuantizeActsKernel, V>(),
           entry<ShortConv, ShortConvKernel, V>()},
          peak<V>};
}

}  // namespace
}  // namespace chaski
