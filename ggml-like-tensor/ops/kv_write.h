// Stores keys and values in their pages, rotating q and k on the way if `rope`.
//   in 0 k (tokens, heads * head_dim), in 1 v (same), in 2 q (tokens, q_heads * head_dim) if rope
//   -> out 0 q rotated, if rope
#pragma once
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/rope.h"

namespace chaski {

struct KvWrite {
  static constexpr const char* kName = "kv_write";
  int layer = 0;
  bool rope = false;
  Rope q, k;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    return rope ? std::vector<Shape>{in[2]} : std::vector<Shape>{};
  }
  Cost cost(const OpArgs& a) const {
    const KvLayout& l = a.batch->kv.layout;
    return {
        double(l.heads) * double(l.k_bytes() + l.v_bytes()) / kPage * double(a.in[0].shape.rows),
        0};
  }

  // One token, one KV head. In kv_write.cpp: compiled once, for every instruction set the same
  // code.
  void write(const OpArgs& a, int64_t t, int head) const;
  void reference(const OpArgs& a) const {
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int h = 0; h < a.batch->kv.layout.heads; ++h) write(a, t, h);
    if (!rope) return;
    OpArgs turn = a;
    turn.in[0] = a.in[2];
    q.reference(turn);
  }
  static std::vector<Example<KvWrite>> examples() {
    const Rope q{4, 16, 16, 0}, k{2, 16, 16, 0};
    return {{{0, false, q, k}, {{{5, 32}}, {{5, 32}}}, 5},
            {{1, true, q, k}, {{{5, 32}}, {{5, 32}}, {{5, 64}}}, 5}};
  }
};

}  // namespace chaski
