// Matmul and its gated form: the order in which strips and tokens are multiplied, chosen for the
// caches.
//
// A block of up to kStrips strips is multiplied with up to kGroupsAtOnce groups of 16 tokens. With
// several groups (a prompt), columns are processed in steps of kStep blocks. The activations of a
// group (24 KB a step) then stay in a near cache for all strips, and the strips stay in L2 until
// the last group. With one group (decode, verification of draft tokens) a strip is read once from
// end to end, which is the best order for memory.
#pragma once
#include "ggml-like-tensor/cpu/math.h"
#include "ggml-like-tensor/cpu/quantize.h"
#include "ggml-like-tensor/cpu/strip.h"
#include "ggml-like-tensor/ops/gated_matmul.h"
#include "ggml-like-tensor/ops/head_matmul.h"

namespace chaski {
namespace {

constexpr int kStrips = 4;
constexpr int64_t kStep = 32;  // blocks of 32 columns

template <class V>
struct BlockResult {
  static constexpr int kTokens = kGroupsAtOnce * kGroup;
  typename V::F acc[kStrips][kTokens];

  void clear(int n_strips, int first, int n) {
    for (int s = 0; s < n_strips; ++s)
#pragma GCC unroll 1
      for (int i = first; i < first + n; ++i) acc[s][i] = V::zero();
  }
};

// The strips of a weight or of one expert, and the kernels of their format.
struct WeightStrips {
  const FormatKernels& kernels;
  const std::byte* data;
  int64_t bytes, cols, blocks;  // of a strip
  WeightStrips(const Scratch& scratch, const Operand& w, const std::byte* strips)
      : kernels(scratch.formats[int(w.format)]),
        data(strips),
        bytes(int64_t(strip_bytes(w.format, w.shape.cols))),
        cols(w.shape.cols),
        blocks((cols + 31) / 32) {}
  WeightStrips(const Scratch& scratch, const Operand& w) : WeightStrips(scratch, w, w.bytes()) {}
};

// Multiplies n_strips strips from `first` on, `step` blocks of columns at a time.
template <class V>
void multiply_strips(const WeightStrips& w, int64_t first, int n_strips, int64_t step,
                     const GroupInput* groups, int n_groups, BlockResult<V>& out) {
  // tiles are faster if at least the first group is whole
  const bool tiles = groups[0].n == kGroup && w.kernels.tiles_times;
  const auto times = tiles ? w.kernels.tiles_times : w.kernels.strips_times;
  for (int64_t from = 0; from < w.blocks; from += step)
    times(w.data + first * w.bytes, size_t(w.bytes), n_strips, from,
          from + step < w.blocks ? from + step : w.blocks, groups, n_groups,
          reinterpret_cast<float*>(out.acc));
}

// Multiplies up to kGroupsAtOnce groups of tokens, from token `first` on. `head`: which slice of x,
// as wide as the weight.
template <class V>
void multiply_block(const WeightStrips& w, int64_t first_strip, int n_strips, const OpArgs& a,
                    int64_t first, BlockResult<V>& out, int64_t head = 0) {
  const int64_t rows = a.in[0].shape.rows;
  GroupInput groups[kGroupsAtOnce];
  int n_groups = 0;
#pragma GCC unroll 1
  for (int64_t t = first; t < rows && n_groups < kGroupsAtOnce; t += kGroup, ++n_groups) {
    const int width = int(rows - t < kGroup ? rows - t : kGroup);
    groups[n_groups] = {
        {a.in_acts.data ? a.in_acts.group(t / kGroup) + head * w.blocks * width : nullptr, width,
         a.in[0].row(t) + head * w.cols, a.in[0].shape.cols, w.cols},
        width};
    // tiles add to the sums of a whole group
    out.clear(n_strips, n_groups * kGroup, rows > kGroup ? kGroup : width);
  }
  multiply_strips<V>(w, first_strip, n_strips, rows > kGroup ? kStep : w.blocks, groups, n_groups,
                     out);
}
// Calls f(first, end) for the tokens that multiply_block() multiplies at once.
template <class V, class Fn>
inline void each_tokens(const OpArgs& a, Fn f) {
  const int64_t rows = a.in[0].shape.rows, step = BlockResult<V>::kTokens;
  for (int64_t t = 0; t < rows; t += step) f(t, t + step < rows ? t + step : rows);
}

inline int64_t strips_of(const Operand& w) { return (w.shape.rows + kStrip - 1) / kStrip; }

// As many units as have 128 KB of weights, but at most a sixteenth of all, so that threads end
// together. A prompt takes long for the strips of one block, so `a_block` of its units are a chunk.
inline int64_t grain_of(int64_t units, double bytes, const OpArgs& a, int64_t a_block) {
  if (a.in[0].shape.rows > kGroup) return a_block;
  const int64_t by_bytes = int64_t(131072 * double(units) / bytes), by_share = units / 16;
  const int64_t grain = by_bytes < by_share ? by_bytes : by_share;
  return grain < 1 ? 1 : grain;
}

template <class V>
struct CpuKernel<MatMul, V> {
  static int64_t units(const MatMul& op, const OpArgs& a) {
    int64_t n = 0;
    for (int i = 0; i < op.weights; ++i) n += strips_of(a.in[1 + i]);
    return n;
  }
  static int64_t grain(const MatMul& op, const OpArgs& a) {
    double bytes = 0;
    for (int i = 0; i < op.weights; ++i) bytes += weight_size(a.in[1 + i]);
    return grain_of(units(op, a), bytes, a, kStrips);
  }
  static double weight_size(const Operand& w) {
    return double(strips_of(w)) * double(strip_bytes(w.format, w.shape.cols));
  }
  static size_t scratch(const MatMul&, const OpArgs&) { return sizeof(BlockResult<V>); }

  static void run(const MatMul& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    int64_t base = 0;  // first unit of weight i
    for (int i = 0; i < op.weights; base += strips_of(a.in[1 + i++])) {
      const int64_t from = first > base ? first - base : 0;
      const int64_t end =
          last - base < strips_of(a.in[1 + i]) ? last - base : strips_of(a.in[1 + i]);
      if (from >= end) continue;
      const WeightStrips strips(scratch, a.in[1 + i]);
      for (int64_t s = from; s < end; s += kStrips)
        block(op, a, i, strips, s, int(end - s < kStrips ? end - s : kStrips), scratch);
    }
  }
  static void block(const MatMul& op, const OpArgs& a, int i, const WeightStrips& strips,
                    int64_t first_strip, int n_strips, const Scratch& scratch) {
    auto& result = *reinterpret_cast<BlockResult<V>*>(scratch.own);
    const Operand& w = a.in[1 + i];
    const float* bias = op.bias ? a.in[1 + op.weights + i].floats() : nullptr;
    each_tokens<V>(a, [&](int64_t first, int64_t end) {
      multiply_block<V>(strips, first_strip, n_strips, a, first, result);
      for (int64_t t = first; t < end; ++t)
        for (int s = 0; s < n_strips; ++s) {
          const int64_t row = (first_strip + s) * kStrip,
                        n = w.shape.rows - row < kStrip ? w.shape.rows - row : kStrip;
          auto y = V::load(reinterpret_cast<const float*>(&result.acc[s][t - first]));
          if (bias) y = V::add(y, load_n<V>(bias + row, n));
          store_n<V>(a.out[i].out_row(t) + row, y, n);
        }
    });
  }
};

// A unit is a strip; strips of a block belong to one head.
template <class V>
struct CpuKernel<HeadMatMul, V> {
  static int64_t units(const HeadMatMul&, const OpArgs& a) { return strips_of(a.in[1]); }
  static int64_t grain(const HeadMatMul& op, const OpArgs& a) {
    return grain_of(units(op, a), CpuKernel<MatMul, V>::weight_size(a.in[1]), a, kStrips);
  }
  static size_t scratch(const HeadMatMul&, const OpArgs&) { return sizeof(BlockResult<V>); }

  static void run(const HeadMatMul& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto& result = *reinterpret_cast<BlockResult<V>*>(scratch.own);
    const WeightStrips strips(scratch, a.in[1]);
    const int64_t of_head = op.outputs(a) / kStrip;
    for (int64_t s = first, next; s < last; s = next) {
      const int64_t head = s / of_head, end = (head + 1) * of_head;
      next = s + kStrips < end ? s + kStrips : end;
      next = next < last ? next : last;
      each_tokens<V>(a, [&](int64_t from, int64_t to) {
        multiply_block<V>(strips, s, int(next - s), a, from, result, head);
        for (int64_t t = from; t < to; ++t)
          for (int64_t k = s; k < next; ++k)
            V::store(a.out[0].out_row(t) + k * kStrip, result.acc[k - s][t - from]);
      });
    }
  }
};

// A unit is 32 outputs, which is a whole block of the quantized result.
template <class V>
struct CpuKernel<GatedMatMul, V> {
  static int64_t units(const GatedMatMul&, const OpArgs& a) {
    return (a.in[1].shape.rows + 31) / 32;
  }
  static int64_t grain(const GatedMatMul& op, const OpArgs& a) {
    return grain_of(
        units(op, a),
        CpuKernel<MatMul, V>::weight_size(a.in[1]) + CpuKernel<MatMul, V>::weight_size(a.in[2]), a,
        1);
  }
  static size_t scratch(const GatedMatMul&, const OpArgs&) { return 2 * sizeof(BlockResult<V>); }

  static void run(const GatedMatMul& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto* result = reinterpret_cast<BlockResult<V>*>(scratch.own);
    const WeightStrips gate(scratch, a.in[1]), up(scratch, a.in[2]);
    for (int64_t u = first; u < last; ++u)
      each_tokens<V>(a, [&](int64_t from, int64_t to) {
        const int n_strips = int(strips_of(a.in[1]) - 2 * u < 2 ? 1 : 2);
        multiply_block<V>(gate, 2 * u, n_strips, a, from, result[0]);
        multiply_block<V>(up, 2 * u, n_strips, a, from, result[1]);
        finish(op, a, u, from, to, n_strips, result);
      });
  }
  // For tokens [from, to). The activations of all tokens come first. Between quantizations, too few
  // activations would run side by side.
  static void finish(const GatedMatMul& op, const OpArgs& a, int64_t u, int64_t from, int64_t to,
                     int n_strips, BlockResult<V>* result) {
    const auto h = [&](int s, int64_t t) {
      return reinterpret_cast<float*>(&result[0].acc[s][t - from]);
    };
    for (int s = 0; s < n_strips; ++s)
      for (int64_t t = from; t < to; ++t)
        V::store(h(s, t), V::mul(activate<V>(op.kind, result[0].acc[s][t - from]),
                                 result[1].acc[s][t - from]));
    const int64_t row = 32 * u, n = a.in[1].shape.rows - row;
    for (int64_t t = from; t < to; ++t) {
      for (int s = 0; a.out[0].data && s < n_strips; ++s)
        store_n<V>(a.out[0].out_row(t) + row + 16 * s, V::load(h(s, t)),
                   n - 16 * s < 16 ? n - 16 * s : 16);
      if (a.acts.data) quantize_halves<V>(h(0, t), h(1, t), a.acts.at(t, u));
    }
  }
};

}  // namespace
}  // namespace chaski
