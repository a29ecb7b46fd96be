// Encoders: float rows to blocks. How a format does it stands with the format (its encode(), and
// header_of() where a row has a header); which format a tensor gets is decided elsewhere
// (engine/quantize/quantize.h).
//
// Formats whose encoder searches take a factor for each column, by which its squared error counts:
// what the inputs of the matmul are like there (engine/quantize/calibration.h).
#pragma once
#include <vector>

#include "quant/format.h"

namespace chaski {

// Formats encode_strip() can produce; all of them, fewest bits first.
bool can_encode(Format f);
bool weighs_columns(Format f);  // whether encode_strip() looks at the factors
std::vector<Format> encodable_formats();

// n_rows <= 16 rows of floats, row_stride floats apart -> one strip; the other lanes are zero.
// Every value must be finite. `factors`: (cols), above 0, the same for all rows; null: all errors
// count equally. `search` is false: by the encoders of quant/encode/fast.h where a format has one.
void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip, const float* factors = nullptr, bool search = true);

}  // namespace chaski
