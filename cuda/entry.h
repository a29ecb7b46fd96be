// Makes the table entry of an op. For each of its ops, a file of kernels ends with:
//
//   template <>
//   struct CudaKernel<Op> : OpKernel {};
//   template CudaEntry cuda_entry<Op>();
//
// OpKernel has a static launch(const Op&, const OpArgs&, const LaunchContext&). It may have
// supports(const Op&, const OpArgs&) and scratch(const Op&, const OpArgs&, int context), both also
// with a last argument size_t shared_limit; without them it supports all formats of the device and
// needs no scratch. CudaEntry describes these.
#pragma once
#include "cuda/table.h"

namespace chaski {

template <class Op>
struct CudaKernel;

template <class Op>
CudaEntry cuda_entry() {
  using Kernel = CudaKernel<Op>;
  return {
      [](const AnyOp& op, const OpArgs& a, const LaunchContext& c) {
        Kernel::launch(*std::get_if<Op>(&op), a, c);
      },
      [](const AnyOp& op, const OpArgs& a, [[maybe_unused]] size_t shared_limit) {
        for (const Operand& in : a.in)
          if (in.weight && !info(in.format).on_device) return false;
        const Op& own = *std::get_if<Op>(&op);
        if constexpr (requires { Kernel::supports(own, a, shared_limit); })
          return Kernel::supports(own, a, shared_limit);
        else if constexpr (requires { &Kernel::supports; })
          return Kernel::supports(own, a);
        return true;
      },
      [](const AnyOp& op, const OpArgs& a, int context,
         [[maybe_unused]] size_t shared_limit) -> size_t {
        const Op& own = *std::get_if<Op>(&op);
        if constexpr (requires { Kernel::scratch(own, a, context, shared_limit); })
          return Kernel::scratch(own, a, context, shared_limit);
        else if constexpr (requires { &Kernel::scratch; })
          return Kernel::scratch(own, a, context);
        return 0;
      },
  };
}

}  // namespace chaski
