// Stores keys and values in their pages, rotating q and k on the way if `rope`.
//   in 0 k (tokens, heads * k_dim), in 1 v (tokens, heads * v_dim), in 2 q (tokens, q_heads *
//   k_dim) if rope
//   -> out 0 q rotated, if rope
#pragma once
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/rope.h"

namespace chaski {

struct KvWrite {
  static constexpr const char* kName = "kv_write";
  StateId state = 0;
  Paged kv;  // what the state is
  bool rope = false;
  Rope q, k;

  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    CHECK(in[0].cols == int64_t(kv.heads) * kv.k_dim && in[1].cols == int64_t(kv.heads) * kv.v_dim,
          "keys and values are as wide as their state's");
    return rope ? std::vector<Shape>{in[2]} : std::vector<Shape>{};
  }
  Cost cost(const OpArgs& a) const {
    return {double(a.batch->states.paged[state].layout.page_bytes()) / kPage *
                double(a.in[0].shape.rows),
            0};
  }

  // One token, one KV head; `room` for k_dim floats. In kv_write.cpp: compiled once, for every
  // instruction set the same code.
  void write(const OpArgs& a, int64_t t, int head, float* room) const;
  void reference(const OpArgs& a) const {
    std::vector<float> room(size_t(kv.k_dim));
    for (int64_t t = 0; t < a.in[0].shape.rows; ++t)
      for (int h = 0; h < kv.heads; ++h) write(a, t, h, room.data());
    if (!rope) return;
    OpArgs turn = a;
    turn.in[0] = a.in[2];
    q.reference(turn);
  }
  static std::vector<Example<KvWrite>> examples() {
    const Rope q{4, 16, 16, 0}, k{2, 16, 16, 0};
    return {{{0, {2, 16, 16, 0}, false, q, k}, {{{5, 32}}, {{5, 32}}}, 5},
            {{1, {2, 16, 16, 0}, true, q, k}, {{{5, 32}}, {{5, 32}}, {{5, 64}}}, 5},
            {{1, {2, 16, 40, 0}, true, q, k}, {{{5, 32}}, {{5, 80}}, {{5, 64}}}, 5},
            {{0, {1, 72, 20, 0}, false, q, k}, {{{5, 72}}, {{5, 20}}}, 5}};
  }
};

}  // namespace chaski
