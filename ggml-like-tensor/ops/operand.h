// What an op sees of a tensor, and the few words every op header uses.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/batch.h"
#include "ggml-like-tensor/pass_context.h"
#include "quant/format.h"
#include "quant/panel.h"

namespace chaski {

// (rows, cols): rows are tokens for activations, outputs for weights.
struct Shape {
  int64_t rows = 0, cols = 0;
  bool operator==(const Shape&) const = default;
};

// What values are: floats; floats quantized for integer matmuls (made by the planner); numbers of
// rows or experts.
enum class ValueKind { f32, acts, i32 };

struct Operand {
  Shape shape;
  Format format = Format::f32;  // of a weight; a weight with more than one row is in tile layout
  void* data = nullptr;         // null: an output nobody reads
  bool weight = false;

  const float* row(int64_t r) const { return static_cast<const float*>(data) + r * shape.cols; }
  float* out_row(int64_t r) const { return static_cast<float*>(data) + r * shape.cols; }
  const std::byte* bytes() const { return static_cast<const std::byte*>(data); }
  const float* floats() const { return static_cast<const float*>(data); }
  const int32_t* ints(int64_t r) const {
    return static_cast<const int32_t*>(data) + r * shape.cols;
  }
  int32_t* out_ints(int64_t r) const { return static_cast<int32_t*>(data) + r * shape.cols; }
};

// Activations quantized for the integer matmuls: groups of 16 tokens, in a group block after block,
// in a block token after token, so that a kernel that handles a group reads straight ahead.
constexpr int kGroup = 16;
struct ActsView {
  Act* data = nullptr;
  int64_t rows = 0, blocks = 0;
  constexpr int64_t width(int64_t group) const {
    return rows - group * kGroup < kGroup ? rows - group * kGroup : kGroup;
  }
  constexpr Act* group(int64_t g) const { return data + g * kGroup * blocks; }
  constexpr Act& at(int64_t row, int64_t block) const {
    const int64_t g = row / kGroup;
    return group(g)[block * width(g) + row % kGroup];
  }
};

// Inputs first to last as the op's header lists them. `acts`: the op also (or only) leaves output 0
// quantized there.
struct OpArgs {
  Operand in[8], out[3];
  int n_in = 0;
  ActsView in_acts;  // input 0, quantized, if the op reads it so
  ActsView acts;
  const Batch* batch = nullptr;
  const PassContext* where = nullptr;
};

struct Cost {
  double bytes = 0, flops = 0;  // bytes of weights and KV pages; activations stay in cache
  double integer = 0;           // of the flops, those that multiply 8-bit integers
};

// A case worth testing: the op's parameters and its inputs' shapes; weights have a format other
// than f32 or `weight` set.
struct Input {
  Shape shape;
  Format format = Format::f32;
  bool weight = false;
  int below = 0;     // more than 0: i32 values from 0 on
  float spread = 3;  // floats are at most so far from 0
};
template <class Op>
struct Example {
  Op op;
  std::vector<Input> in;
  int64_t tokens = 1;
};

// Exact values of row r of a weight.
inline void weight_row(const Operand& w, int64_t r, float* out) {
  if (w.shape.rows == 1) return decode_plain_row(w.format, w.bytes(), w.shape.cols, out);
  decode_row(w.format, w.bytes() + r / kStrip * strip_bytes(w.format, w.shape.cols),
             int(r % kStrip), w.shape.cols, out);
}

}  // namespace chaski
