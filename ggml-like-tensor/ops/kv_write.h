// Stores keys and values in the places that the batch gives. With `rope` it also rotates q and k.
//   in 0 k (tokens, heads * k_dim); in 1 v (tokens, heads * v_dim) unless it is inside k; in 2 q
//   (tokens, q_heads * k_dim) if rope, which needs a v; then the centre (1, heads * k_dim) if
//   centered; last the scales, of the same shape, if scaled
//   -> out 0 q rotated, if rope
// Short formats lose little if the channels of a key are of equal size. So rotated keys are stored
// minus the centre (PageOf::kCentered). This changes all scores of a query by the same number, so
// their soft-max stays the same. Scores with a cap or a sink need keys without a centre. Keys of
// blocks are then divided by the scales and rotated by a Hadamard matrix (PageOf::kRotation), and
// attention multiplies the queries by the scales and rotates them. Scales are powers of two, so
// they round nothing. The best scale of a channel makes keys and queries equally large in it: the
// rotation spreads the rounding error evenly over the channels.
#pragma once
#include "ggml-like-tensor/ops/quantize_acts.h"
#include "ggml-like-tensor/ops/rope.h"

namespace chaski {

struct KvWrite {
  static constexpr const char* kName = "kv_write";
  StateId state = 0;
  Paged kv;  // the sizes of the state
  bool rope = false;
  Rope q, k;
  bool centered = false, scaled = false;

  size_t centre_at() const { return 2 + size_t(rope); }
  size_t scales_at() const { return centre_at() + size_t(centered); }
  std::vector<Shape> shapes(std::span<const Shape> in, const Batch&) const {
    ENSURE(in[0].cols == int64_t(kv.heads) * kv.k_dim &&
               (kv.v_inside_k ? in.size() == 1 && kv.v_dim <= kv.k_dim
                              : in[1].cols == int64_t(kv.heads) * kv.v_dim),
           "keys and values must be as wide as those of their state");
    ENSURE(!centered || (!kv.v_inside_k && in[centre_at()] == Shape{1, in[0].cols}),
           "every channel of the keys must have a centre");
    ENSURE(!scaled || (!kv.v_inside_k && in[scales_at()] == Shape{1, in[0].cols}),
           "every channel of the keys must have a scale");
    return rope ? std::vector<Shape>{in[2]} : std::vector<Shape>{};
  }
  const KvView& view(const OpArgs& a) const { return a.where->states.paged[size_t(state)]; }
  const std::vector<Store>& stores(const OpArgs& a) const {
    return a.batch->stores[size_t(view(a).pool)];
  }
  Cost cost(const OpArgs& a) const {
    return {double(view(a).layout.page_bytes()) / kPage * double(stores(a).size()), 0};
  }

  // Writes one token of one KV head; `room` has k_dim + v_dim floats. It is in kv_write.cpp:
  // compiled once, so that every instruction set runs the same code.
  void write(const OpArgs& a, const Store& to, int head, float* room) const;
  void reference(const OpArgs& a) const {
    std::vector<float> room(size_t(kv.k_dim + kv.v_dim));
    for (const Store& s : stores(a))
      for (int h = 0; h < kv.heads; ++h) write(a, s, h, room.data());
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
            {{0, {1, 72, 20, 0}, false, q, k}, {{{5, 72}}, {{5, 20}}}, 5},
            {{1, {2, 40, 20, 0, true}, false, q, k}, {{{5, 80}}}, 5},
            {{0, {2, 40, 20, 0}, false, q, k, true},
             {{{5, 80}}, {{5, 40}}, {{1, 80}, Format::f32, true}},
             5},
            {{0, {2, 64, 32, 0}, false, q, k, false, true},
             {{{5, 128}}, {{5, 64}}, {{1, 128}, Format::f32, true}},
             5},
            {{1, {2, 16, 16, 0}, true, q, k, true},
             {{{5, 32}}, {{5, 32}}, {{5, 64}}, {{1, 32}, Format::f32, true}},
             5}};
  }
};

}  // namespace chaski
