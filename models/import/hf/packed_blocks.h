// Blocks of quantized weights as GPTQ and AWQ represent them, for write_packed.cpp: integer codes
// with a scale and a whole zero point.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"
#include "quant/formats.h"

namespace chaski {

constexpr int64_t kPackedGroup = 32;  // columns that share a scale

// A block of 32 columns as integer multiples of a scale.
struct Multiples {
  uint16_t scale;
  int q[kPackedGroup];

  int least() const { return *std::min_element(q, q + kPackedGroup); }
  int most() const { return *std::max_element(q, q + kPackedGroup); }
  // The zero point, which is added to make codes of `bits` bits: as near to the middle of their
  // range as possible. -1: codes of that width are too narrow.
  int zero(int bits) const;
};

// Writes the values of a block as multiples of its scale. Returns false if the block has a minimum
// that is not a multiple of the scale.
bool multiples_of(const Q4_0::Block& b, Multiples& m);
bool multiples_of(const Q5_0::Block& b, Multiples& m);
bool multiples_of(const Q8::Block& b, Multiples& m);
bool multiples_of(const Q4_1::Block& b, Multiples& m);
bool multiples_of(const Q5_1::Block& b, Multiples& m);

// The formats with blocks that may have an exact image.
using WithImage = FormatList<Q4_0, Q5_0, Q8, Q4_1, Q5_1>;
bool has_image(Format format);

// Calls fn(row, strip, row in the strip) for all rows.
template <class Fn>
void each_row(const TensorSource& t, Fn fn) {
  std::vector<std::byte> strip(t.info.tiled() ? strip_bytes(t.info.format, t.info.cols)
                                              : t.info.bytes());
  for (int64_t row = 0; row < t.info.rows; ++row) {
    if (row % kStrip == 0) t.read(row / kStrip, row / kStrip + 1, strip.data());
    fn(row, strip.data(), int(row % kStrip));
  }
}

// Calls fn(row, block, multiples, exact) for all blocks. exact is false if the block has values
// that are no multiples of its scale.
template <class Fn>
void each_block(const TensorSource& t, Fn fn) {
  WithImage::with(t.info.format, [&]<class F>(F) {
    each_row(t, [&](int64_t row, const std::byte* strip, int r) {
      const StripOf<F> s(strip);
      for (int64_t b = 0; b < t.info.cols / kPackedGroup; ++b) {
        Multiples m{};
        const bool exact = multiples_of(F::get(s.tiles()[b], r), m);
        fn(row, b, m, exact);
      }
    });
  });
}

// Calls fn(row, values of the row) for all rows.
template <class Fn>
void each_row_of_values(const TensorSource& t, Fn fn) {
  std::vector<float> values(size_t(t.info.cols));
  each_row(t, [&](int64_t row, const std::byte* strip, int r) {
    if (t.info.tiled())
      decode_row(t.info.format, strip, r, t.info.cols, values.data());
    else
      decode_plain_row(t.info.format, strip, t.info.cols, values.data());
    fn(row, values);
  });
}

// The float format with the fewest bits that represents all values exactly.
Format narrowest(const TensorSource& t);

}  // namespace chaski
