// Quantizes activations to 8 bits in blocks of 32: d = max |x| / 127, q = x * (127 / max) rounded
// to nearest even. A block with a value that is not finite becomes NaN as a whole (d and ds are
// NaN), so that the error reaches the logits. A block that is too small for 127 / max becomes zero.
//   in 0 x (rows, cols), cols a multiple of 32 -> acts
#pragma once
#include "ggml-like-tensor/ops/operand.h"

namespace chaski {

struct QuantizeActs {
  static constexpr const char* kName = "quantize_acts";

  bool leaves_acts() const { return true; }
  std::vector<Shape> shapes(std::span<const Shape>, const Batch&) const { return {}; }
  Cost cost(const OpArgs&) const { return {}; }

  static constexpr float kSmallest = 4e-37f;  // 127 / kSmallest is below FLT_MAX
  static void block(const float* x, Act& a) {
    float most = 0, zero = 0;
    for (int i = 0; i < 32; ++i) zero += x[i] * 0;
    for (int i = 0; i < 32; ++i) most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
    const bool finite = zero == 0;
    const float inverse = finite && most > kSmallest ? 127 / most : 0;
    for (int i = 0; i < 32; ++i) a.q[i] = finite ? int8_t(std::nearbyint(x[i] * inverse)) : 0;
    a.d = finite ? most / 127 : NAN;
    a.set_sums();
  }
  static void row(const float* x, const ActsView& acts, int64_t r) {
    for (int64_t b = 0; b < acts.blocks; ++b) block(x + 32 * b, acts.at(r, b));
  }
  void reference(const OpArgs& a) const {
    for (int64_t r = 0; r < a.in[0].shape.rows; ++r) row(a.in[0].row(r), a.acts, r);
  }
  static std::vector<Example<QuantizeActs>> examples() {
    return {{{}, {{{1, 32}}}}, {{}, {{{19, 96}}}}};
  }
};

}  // namespace chaski
