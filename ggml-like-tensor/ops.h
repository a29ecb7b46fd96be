// The list of all ops. An entry here gives an op an id, a name, a row in the profile and in each
// backend's table, and its place in the test sweep (tests/tensor/op_test.cpp). ops/<op>.h declares
// each op: parameters, shape rule, cost, reference, examples. It may also declare, for rewrites of
// a graph:
//
//   kReadsActs      if set, the op reads input 0 quantized when its weights have block formats
//   kind_in(i), kind_out(i)   the kinds of input and output i; without them all are f32
//   leaves_acts()   whether the op can also write output 0 quantized, in addition to floats or
//                   instead of them, if rows are whole blocks of 32.
//   kRoundsState    if set, the op computes the floats of its state. Tests then compare them as
//                   they compare outputs
//   settle()        changes random numbers to those that a state can have. Tests begin with them
#pragma once
#include <variant>

#include "ggml-like-tensor/ops/attention.h"
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/blend.h"
#include "ggml-like-tensor/ops/columns.h"
#include "ggml-like-tensor/ops/delta_rule.h"
#include "ggml-like-tensor/ops/expert_matmul.h"
#include "ggml-like-tensor/ops/gated_expert_matmul.h"
#include "ggml-like-tensor/ops/gated_matmul.h"
#include "ggml-like-tensor/ops/get_rows.h"
#include "ggml-like-tensor/ops/head_matmul.h"
#include "ggml-like-tensor/ops/join.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "ggml-like-tensor/ops/lightning_index.h"
#include "ggml-like-tensor/ops/matmul.h"
#include "ggml-like-tensor/ops/mean_product.h"
#include "ggml-like-tensor/ops/mix.h"
#include "ggml-like-tensor/ops/norm.h"
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/reorder.h"
#include "ggml-like-tensor/ops/rope.h"
#include "ggml-like-tensor/ops/round_rows.h"
#include "ggml-like-tensor/ops/route.h"
#include "ggml-like-tensor/ops/scale.h"
#include "ggml-like-tensor/ops/scale_chosen.h"
#include "ggml-like-tensor/ops/selective_scan.h"
#include "ggml-like-tensor/ops/set_aside.h"
#include "ggml-like-tensor/ops/short_conv.h"
#include "ggml-like-tensor/ops/soft_max.h"
#include "ggml-like-tensor/ops/sparse_attention.h"
#include "ggml-like-tensor/ops/sparse_mixer.h"
#include "ggml-like-tensor/ops/state_scan.h"
#include "ggml-like-tensor/ops/take_rows.h"
#include "ggml-like-tensor/ops/taylor_scan.h"
#include "ggml-like-tensor/ops/top_k.h"
#include "ggml-like-tensor/ops/unary.h"
#include "ggml-like-tensor/ops/wkv.h"
#include "ggml-like-tensor/ops/xielu.h"

namespace chaski {

template <class... Op>
struct OpList {
  static constexpr int kCount = sizeof...(Op);
  using Any = std::variant<Op...>;  // the parameters of one op; index() is its id
  static constexpr const char* kNames[] = {Op::kName...};
  template <class Fn>
  static void each(Fn&& fn) {
    (fn(Op{}), ...);
  }
};

using Ops =
    OpList<GetRows, TakeRows, MatMul, GatedMatMul, Norm, Rope, KvWrite, Attention, Binary, Unary,
           SoftMax, QuantizeActs, ShortConv, Scale, TopK, ExpertMatMul, GatedExpertMatMul, Mix,
           Columns, Blend, MeanProduct, RoundRows, Reorder, SetAside, Xielu, Route, HeadMatMul,
           Join, SparseMixer, ScaleChosen, LightningIndex, SparseAttention, SelectiveScan,
           StateScan, DeltaRule, Wkv, TaylorScan>;
using AnyOp = Ops::Any;

template <class Op>
constexpr bool kCanReadActs = requires {
  Op::kReadsActs;
};
template <class Op>
ValueKind kind_in(const Op& op, size_t i) {
  if constexpr (requires { op.kind_in(i); }) return op.kind_in(i);
  return ValueKind::f32;
}
template <class Op>
ValueKind kind_out(const Op& op, size_t i) {
  if constexpr (requires { op.kind_out(i); }) return op.kind_out(i);
  return ValueKind::f32;
}
template <class Op>
bool can_leave_acts(const Op& op) {
  if constexpr (requires { op.leaves_acts(); }) return op.leaves_acts();
  return false;
}

inline const char* name_of(const AnyOp& op) { return Ops::kNames[op.index()]; }
// The state that the op uses, or null.
inline const StateId* state_of(const AnyOp& op) {
  return std::visit(
      [](const auto& o) -> const StateId* {
        if constexpr (requires { o.state; })
          if (o.state >= 0) return &o.state;
        return nullptr;
      },
      op);
}

}  // namespace chaski
