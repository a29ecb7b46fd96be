// Every op, once. A word here gives it an id, a name, a row in the profile and in each backend's
// table, and its place in the test sweep (tests/op_test.cpp). Each is declared in ops/<op>.h:
// parameters, shape rule, cost, reference, examples.
#pragma once
#include <variant>

#include "ggml-like-tensor/ops/attention.h"
#include "ggml-like-tensor/ops/binary.h"
#include "ggml-like-tensor/ops/gated_matmul.h"
#include "ggml-like-tensor/ops/get_rows.h"
#include "ggml-like-tensor/ops/kv_write.h"
#include "ggml-like-tensor/ops/matmul.h"
#include "ggml-like-tensor/ops/norm.h"
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/rope.h"
#include "ggml-like-tensor/ops/short_conv.h"
#include "ggml-like-tensor/ops/soft_max.h"
#include "ggml-like-tensor/ops/take_rows.h"
#include "ggml-like-tensor/ops/unary.h"

namespace chaski {

template <class... Op>
struct OpList {
  static constexpr int kCount = sizeof...(Op);
  using Any = std::variant<Op...>;  // parameters of one op; index() is its id
  static constexpr const char* kNames[] = {Op::kName...};
  template <class Fn>
  static void each(Fn&& fn) {
    (fn(Op{}), ...);
  }
};

using Ops = OpList<GetRows, TakeRows, MatMul, GatedMatMul, Norm, Rope, KvWrite, Attention, Binary,
                   Unary, SoftMax, QuantizeActs, ShortConv>;
using AnyOp = Ops::Any;

inline const char* name_of(const AnyOp& op) { return Ops::kNames[op.index()]; }
// The state it holds, if it holds one.
inline const StateId* state_of(const AnyOp& op) {
  return std::visit(
      [](const auto& o) -> const StateId* {
        if constexpr (requires { o.state; }) return &o.state;
        return nullptr;
      },
      op);
}

}  // namespace chaski
