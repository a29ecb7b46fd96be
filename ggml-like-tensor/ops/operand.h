// What an op sees of a tensor, and the types that every op header uses.
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

// (rows, cols). Rows are tokens for activations and outputs for weights.
struct Shape {
  int64_t rows = 0, cols = 0;
  bool operator==(const Shape&) const = default;
};

// The kinds of values: floats; floats quantized for integer matmuls (added by fuse()); numbers of
// rows or experts.
enum class ValueKind { f32, acts, i32 };

// Where the experts of a weight are, if memory does not hold all of them (expert_cache.h). Its
// functions may be called from several threads.
class ExpertPlaces {
 public:
  // The next op that reads the weight wants these experts of `tokens` tokens. Reads of those that
  // are not in memory begin.
  virtual void expect(const int32_t* chosen, int64_t tokens, int64_t a_token) = 0;
  // The expected experts, each once, in the order in which it is best to compute them; -1: there
  // are fewer.
  virtual int64_t in_order(int64_t place) const = 0;
  // The bytes of an expert, which stay until release(). Waits until they are read.
  virtual const std::byte* hold(int64_t expert) = 0;
  virtual void release(int64_t expert) = 0;

 protected:
  ~ExpertPlaces() = default;
};

struct Operand {
  Shape shape;
  Format format = Format::f32;  // of a weight; weights with more than one row are in tile layout
  void* data = nullptr;         // null: an output without readers
  bool weight = false;
  ExpertPlaces* places = nullptr;  // of the experts of a weight; null: they are at `data`

  const float* row(int64_t r) const { return static_cast<const float*>(data) + r * shape.cols; }
  float* out_row(int64_t r) const { return static_cast<float*>(data) + r * shape.cols; }
  const std::byte* bytes() const { return static_cast<const std::byte*>(data); }
  const float* floats() const { return static_cast<const float*>(data); }
  const int32_t* ints(int64_t r) const {
    return static_cast<const int32_t*>(data) + r * shape.cols;
  }
  int32_t* out_ints(int64_t r) const { return static_cast<int32_t*>(data) + r * shape.cols; }
};

// Activations quantized for integer matmuls: groups of 16 tokens; in a group block after block; in
// a block token after token. So a kernel that processes a group reads straight ahead.
constexpr int kGroup = 16;
// Memory for activations has this many bytes more, because kernels read as if the last group had 16
// tokens.
constexpr size_t kPastActs = (kGroup - 1) * sizeof(Act);
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

// Inputs from first to last, as the op's header lists them. `acts`: the op also writes output 0
// quantized there, or only there.
struct OpArgs {
  Operand in[8], out[3];
  int n_in = 0;
  ActsView in_acts;  // input 0 quantized, if the op reads it so
  ActsView acts;
  const Batch* batch = nullptr;
  const PassContext* where = nullptr;
};

struct Cost {
  double bytes = 0, flops = 0;  // bytes of weights and KV pages; activations stay in cache
  double integer = 0;           // those of the flops that multiply 8-bit integers
};

// A test case: the op's parameters and the shapes of its inputs. Weights have a format other than
// f32, or `weight` set.
struct Input {
  Shape shape;
  Format format = Format::f32;
  bool weight = false;
  int below = 0;                 // more than 0: i32 values 0 .. below - 1
  float spread = 3, centre = 0;  // floats are between centre - spread and centre + spread
};
template <class Op>
struct Example {
  Op op;
  std::vector<Input> in;
  int64_t tokens = 1;
};

// The exact values of row r of a weight.
inline void weight_row(const Operand& w, int64_t r, float* out) {
  if (w.shape.rows == 1) return decode_plain_row(w.format, w.bytes(), w.shape.cols, out);
  decode_row(w.format, w.bytes() + r / kStrip * strip_bytes(w.format, w.shape.cols),
             int(r % kStrip), w.shape.cols, out);
}

}  // namespace chaski
