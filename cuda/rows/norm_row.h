// The norm of one row or one head, as the host describes it to a kernel (norm.cuh).
#pragma once
#include "cuda/device/order.h"
#include "cuda/table.h"

namespace chaski {

struct NormRow {
  // x is null without a norm, r without an addition, bias except with layer norm.
  const float *x, *r, *weight, *bias;
  float *y, *sum;  // null if not wanted
  ActsView acts;   // data is null if not wanted
  int64_t n;
  float eps;
  // number of neighbouring rows with different weights; 1: all rows share the weights
  int weights = 1;
};

inline NormRow norm_row_of(const Norm& op, const OpArgs& a) {
  return {a.in[0].floats(),
          op.adds ? a.in[1].floats() : nullptr,
          op.weight(a).floats(),
          op.kind == Norm::Kind::layer ? op.bias(a).floats() : nullptr,
          a.out[0].out_row(0),
          op.adds ? a.out[1].out_row(0) : nullptr,
          a.acts,
          a.in[0].shape.cols / op.heads,
          op.eps,
          op.weight(a).shape.cols == a.in[0].shape.cols ? op.heads : 1};
}

// Threads of a row. They are part of the order of its sums, so the number is the same wherever the
// row is normed: as many as multiply it.
inline int norm_threads(int64_t columns) {
  return 32 * segments_of(groups_of(int(columns + 31) / 32));
}

}  // namespace chaski
