// Matmuls in which each row chooses its weight matrix. A unit of work is some strips of one expert,
// times all rows that chose it. So an expert's weights are read once in a pass, whatever its number
// of tokens: a strip stays in L2 while it is multiplied with kTokens rows at a time. A decode step
// chooses few of many experts, so only the experts that its rows can choose have units.
#pragma once
#include "ggml-like-tensor/cpu/matmul.h"
#include "ggml-like-tensor/ops/gated_expert_matmul.h"

namespace chaski {
namespace {

// The strips of a unit: with few rows about as many bytes as a thread should take at once; with
// many rows twice as many, because the rows are copied next to each other for each unit.
constexpr int kExpertStrips = 2 * kStrips;
constexpr int kMostFew = 4096;  // experts that few_rows() can tell apart

// The experts and rows of an op with `experts` experts. `a` is as for ExpertMatMul.
struct ExpertUnits {
  const OpArgs& a;
  int64_t experts, strips, a_unit;

  ExpertUnits(const ExpertMatMul& op, const OpArgs& args, int weights)
      : a(args), experts(op.experts), strips(op.outputs(args) / kStrip) {
    a_unit = kExpertStrips / weights * (few_rows() ? 1 : 2);
  }
  int64_t rows() const { return a.in[2].shape.rows * a.in[2].shape.cols; }
  // Whether the units are those of the different experts of the rows, not those of all experts.
  bool few_rows() const { return rows() < experts && experts <= kMostFew; }
  int64_t parts() const { return (strips + a_unit - 1) / a_unit; }
  int64_t units() const { return (few_rows() ? rows() : experts) * parts(); }
  // The expert of the units of `place`, or -1 if the rows choose fewer.
  int64_t expert_at(int64_t place) const {
    if (a.in[1].places) return a.in[1].places->in_order(place);
    if (!few_rows()) return place;
    uint64_t seen[kMostFew / 64] = {};
    for (int64_t row = 0; row < rows(); ++row) {
      const int32_t expert = ExpertMatMul::expert_of(a, row);
      const uint64_t bit = uint64_t{1} << expert % 64;
      if (seen[expert / 64] & bit) continue;
      if (place-- == 0) return expert;
      seen[expert / 64] |= bit;
    }
    return -1;
  }
  // Calls f(expert, first strip, end) for the experts of units [first, last).
  template <class Fn>
  void each_expert(int64_t first, int64_t last, Fn f) const {
    for (int64_t u = first, end; u < last; u = end) {
      const int64_t place = u / parts();
      end = (place + 1) * parts() < last ? (place + 1) * parts() : last;
      const int64_t expert = expert_at(place), from = u % parts() * a_unit,
                    to = from + (end - u) * a_unit;
      if (expert >= 0) f(expert, from, to < strips ? to : strips);
    }
  }
  // Calls f(rows, n) for the rows of an expert, up to kMost at a time.
  template <int kMost, class Fn>
  void each_rows(int64_t expert, Fn f) const {
    int64_t chosen[kMost];
    int n = 0;
    for (int64_t row = 0; row < rows(); ++row) {
      if (ExpertMatMul::expert_of(a, row) == expert) chosen[n++] = row;
      if (n == kMost || (n > 0 && row + 1 == rows())) f(chosen, n), n = 0;
    }
  }
};

// The bytes of an expert, until release_expert(). Not a class with a destructor: that would need
// the tables of exceptions, which leak a symbol, and kernels throw none.
inline const std::byte* hold_expert(const Operand& w, int64_t expert, int64_t strips) {
  if (w.places) return w.places->hold(expert);
  return w.bytes() + expert * strips * int64_t(strip_bytes(w.format, w.shape.cols));
}
inline void release_expert(const Operand& w, int64_t expert) {
  if (w.places) w.places->release(expert);
}

// Requests the first bytes of w's strips that are read next: int_strip() requests only what is
// kAhead further on. An expert is read in many short runs, so waiting for the first bytes of each
// costs more than in a matmul.
inline __attribute__((always_inline)) void prefetch_start(const Operand& w,
                                                          const std::byte* strips) {
  int bytes = kPrefetch;
  Formats::with(w.format, [&]<class F>(F) {
    if constexpr (!F::kFloat) bytes = kAhead<TilesOf<F>>;
  });
  prefetch(strips, bytes, 0);
}

// The inputs of some rows of y, in groups: where they are if it is one row, otherwise copied.
template <class V>
struct ExpertInput {
  static constexpr int kMost = BlockResult<V>::kTokens;
  GroupInput groups[kGroupsAtOnce];
  int n_groups = 0, rows = 0;

  // The bytes of memory that the copies need.
  static int64_t bytes(const OpArgs& a) {
    return kMost * (reads_acts(a.in[1].format) ? a.in_acts.blocks * int64_t(sizeof(Act))
                                               : a.in[0].shape.cols * int64_t(sizeof(float)));
  }
  ExpertInput(const OpArgs& a, const int64_t* chosen, int n, std::byte* memory) : rows(n) {
    for (int first = 0; first < n; first += kGroup, ++n_groups) {
      const int width = n - first < kGroup ? n - first : kGroup;
      groups[n_groups] = {n == 1
                              ? in_place(a, chosen[0])
                              : copied(a, chosen + first, width, memory + bytes(a) / kMost * first),
                          width};
    }
  }
  static StripInput in_place(const OpArgs& a, int64_t chosen) {
    const int64_t row = ExpertMatMul::input_of(a, chosen), cols = a.in[0].shape.cols;
    if (!reads_acts(a.in[1].format)) return {nullptr, 1, a.in[0].row(row), cols, cols};
    return {&a.in_acts.at(row, 0), a.in_acts.width(row / kGroup), nullptr, cols, cols};
  }
  static StripInput copied(const OpArgs& a, const int64_t* chosen, int n, std::byte* memory) {
    const int64_t cols = a.in[0].shape.cols;
    auto* acts = reinterpret_cast<Act*>(memory);
    auto* x = reinterpret_cast<float*>(memory);
    for (int i = 0; i < n; ++i) {
      const int64_t row = ExpertMatMul::input_of(a, chosen[i]);
      if (!reads_acts(a.in[1].format)) {
        __builtin_memcpy(x + i * cols, a.in[0].row(row), cols * sizeof(float));
        continue;
      }
      const Act* from = &a.in_acts.at(row, 0);
      const int64_t width = a.in_acts.width(row / kGroup);
      for (int64_t b = 0; b < a.in_acts.blocks; ++b) acts[b * n + i] = from[b * width];
    }
    return {acts, n, x, cols, cols};
  }
};

// result[strip][row]: n_strips strips of an expert, from `first` on, times some rows.
template <class V>
void multiply_expert(const WeightStrips& w, int64_t first, int n_strips, const ExpertInput<V>& in,
                     BlockResult<V>& result) {
  result.clear(n_strips, 0, in.n_groups > 1 ? in.n_groups * kGroup : in.rows);
  multiply_strips<V>(w, first, n_strips, in.rows > kGroup / 2 ? kStep : w.blocks, in.groups,
                     in.n_groups, result);
}

template <class V>
struct CpuKernel<ExpertMatMul, V> {
  static int64_t units(const ExpertMatMul& op, const OpArgs& a) {
    return ExpertUnits(op, a, 1).units();
  }
  static int64_t grain(const ExpertMatMul&, const OpArgs&) { return 1; }
  static size_t scratch(const ExpertMatMul&, const OpArgs& a) {
    return sizeof(BlockResult<V>) + ExpertInput<V>::bytes(a);
  }

  static void run(const ExpertMatMul& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto& result = *reinterpret_cast<BlockResult<V>*>(scratch.own);
    const ExpertUnits units(op, a, 1);
    units.each_expert(first, last, [&](int64_t expert, int64_t from, int64_t to) {
      const WeightStrips weights(scratch, a.in[1], hold_expert(a.in[1], expert, units.strips));
      const float* const bias = op.biases(a, expert);
      prefetch_start(a.in[1], weights.data + from * weights.bytes);
      units.template each_rows<ExpertInput<V>::kMost>(expert, [&](const int64_t* chosen, int n) {
        const ExpertInput<V> in(a, chosen, n, scratch.own + sizeof result);
        for (int64_t s = from; s < to; s += kStrips) {
          const int n_strips = int(to - s < kStrips ? to - s : kStrips);
          multiply_expert<V>(weights, s, n_strips, in, result);
          for (int k = 0; k < n_strips; ++k)
            for (int i = 0; i < n; ++i) {
              typename V::F y = result.acc[k][i];
              if (bias) y = V::add(y, V::load(bias + (s + k) * kStrip));
              V::store(a.out[0].out_row(chosen[i]) + (s + k) * kStrip, y);
            }
        }
      });
      release_expert(a.in[1], expert);
    });
  }
};

template <class V>
struct CpuKernel<GatedExpertMatMul, V> {
  static int64_t units(const GatedExpertMatMul& op, const OpArgs& a) {
    const OpArgs gate = op.plain_args(a, 0);
    return ExpertUnits(op.plain(), gate, 2).units();
  }
  static int64_t grain(const GatedExpertMatMul&, const OpArgs&) { return 1; }
  static size_t scratch(const GatedExpertMatMul&, const OpArgs& a) {
    return 2 * sizeof(BlockResult<V>) + ExpertInput<V>::bytes(a);
  }

  static void run(const GatedExpertMatMul& op, const OpArgs& a, int64_t first, int64_t last,
                  const Scratch& scratch) {
    auto* result = reinterpret_cast<BlockResult<V>*>(scratch.own);
    const OpArgs plain = op.plain_args(a, 0);
    const ExpertUnits units(op.plain(), plain, 2);
    units.each_expert(first, last, [&](int64_t expert, int64_t from, int64_t to) {
      const WeightStrips gate(scratch, a.in[1], hold_expert(a.in[1], expert, units.strips));
      const WeightStrips up(scratch, a.in[2], hold_expert(a.in[2], expert, units.strips));
      const float* const biases[2] = {op.plain().biases(plain, expert),
                                      op.plain().biases(op.plain_args(a, 1), expert)};
      prefetch_start(a.in[1], gate.data + from * gate.bytes);
      units.template each_rows<ExpertInput<V>::kMost>(expert, [&](const int64_t* chosen, int n) {
        const ExpertInput<V> in(plain, chosen, n, reinterpret_cast<std::byte*>(result + 2));
        for (int64_t s = from; s < to; s += kStrips) {
          const int n_strips = int(to - s < kStrips ? to - s : kStrips);
          prefetch_start(a.in[2], up.data + s * up.bytes);
          multiply_expert<V>(gate, s, n_strips, in, result[0]);
          multiply_expert<V>(up, s, n_strips, in, result[1]);
          for (int k = 0; k < n_strips && op.bias; ++k)
            for (int i = 0; i < n; ++i)
              for (int w = 0; w < 2; ++w)
                result[w].acc[k][i] =
                    V::add(result[w].acc[k][i], V::load(biases[w] + (s + k) * kStrip));
          for (int i = 0; i < n; ++i) finish(op, a, s, n_strips, chosen[i], i, result);
        }
      });
      release_expert(a.in[1], expert), release_expert(a.in[2], expert);
    });
  }
  // Writes n_strips strips from `first` on, an even number, of a row.
  static void finish(const GatedExpertMatMul& op, const OpArgs& a, int64_t first, int n_strips,
                     int64_t row, int i, const BlockResult<V>* result) {
    alignas(64) float h[kStrips * kStrip];
    for (int k = 0; k < n_strips; ++k) {
      const auto &gate = result[0].acc[k][i], &up = result[1].acc[k][i];
      V::store(h + k * kStrip,
               op.clamped ? clamped_swiglu<V>(gate, up) : V::mul(activate<V>(op.kind, gate), up));
    }
    if (a.out[0].data)
      __builtin_memcpy(a.out[0].out_row(row) + first * kStrip, h,
                       n_strips * kStrip * sizeof(float));
    for (int k = 0; a.acts.data && k < n_strips; k += 2)
      quantize_block<V>(h + k * kStrip, a.acts.at(row, (first + k) / 2));
  }
};

}  // namespace
}  // namespace chaski
