// Encoders: float rows to blocks. Which format a tensor gets is decided elsewhere
// (engine/quantize.h).
#pragma once
#include "quant/format.h"

namespace chaski {

// Formats encode_strip() can produce.
bool can_encode(Format f);

// n_rows <= 16 rows of floats, row_stride floats apart -> one strip; the other lanes are zero.
// Every value must be finite.
//   f32 f16 bf16   nearest even
//   q8, q8f        d = max |x| / 127, nearest
//   q4_0           per block the f16 scale of least squared error: codes for 32 candidates round
//                  max / -8 and max / 8, each with the scale <x, q> / <q, q> that fits them best,
//                  then two more rounds from the best (Lloyd 1982 with a fixed codebook)
//   q4, q4h        per block or half block sign x centre x up to six levels of scale (q4.h), the
//                  least squared error wins
void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip);

}  // namespace chaski
