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
#include "ggml-like-tensor/cpu/taylor_scan.h"
#include "ggml-like-tensor/cpu/tiles.h"

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

template <class V, class F>
constexpr FormatKernels format_kernels() {
  FormatKernels k{strips_times<V, TilesOf<F>>, nullptr, nullptr, peak<V, F>};
  if constexpr (KvFormats::has<F>) k.weigh_values = weigh_values<V, F>;
  return k;
}

template <class V, class Own>
struct Tables {
  template <class... Op>
  static constexpr Backend of_ops(OpList<Op...>) {
    return {V::kName, {entry<Op, V>()...}, {}};
  }
  template <class F>
  static constexpr FormatKernels own() {
    if constexpr (Own::template value<F>) return format_kernels<V, F>();
    return {};
  }
  template <class... F>
  static constexpr Backend with_formats(Backend ops, FormatList<F...>) {
    ((ops.formats[int(F::kFormat)] = own<F>()), ...);
    return ops;
  }
};

struct AllFormats {
  template <class F>
  static constexpr bool value = true;
};
// The formats whose products are of bytes.
struct FormatsOfBlocks {
  template <class F>
  static constexpr bool value = !F::kFloat;
};

template <class V>
constexpr Backend backend_of() {
  return Tables<V, AllFormats>::with_formats(Tables<V, AllFormats>::of_ops(Ops{}), Formats{});
}
// The kernels of the formats that gain from these Lanes. backends.cpp takes the others, and those
// of ops, from the instruction set below, whose Lanes are Base.
template <class V, class Base, class Own>
constexpr Backend formats_of() {
  static_assert(sizeof(typename V::F) == sizeof(typename Base::F));
  return Tables<V, Own>::with_formats({V::kName, {}, {}}, Formats{});
}

// The same for matrix tiles T, which multiply many tokens; V unpacks the weights.
template <class V, class T>
struct TileTables {
  template <class F>
  static constexpr FormatKernels own() {
    if constexpr (F::kFloat)
      return {};
    else
      return {nullptr, tiles_times<V, T, TilesOf<F>>, nullptr, nullptr, tile_peak<T, F::kDot>};
  }
  template <class... F>
  static constexpr Backend of(FormatList<F...>) {
    Backend backend{V::kName, {}, {}};
    ((backend.formats[int(F::kFormat)] = own<F>()), ...);
    return backend;
  }
};
template <class V, class T, class Base>
constexpr Backend tiles_of() {
  static_assert(sizeof(typename V::F) == sizeof(typename Base::F));
  return TileTables<V, T>::of(Formats{});
}

}  // namespace
}  // namespace chaski
