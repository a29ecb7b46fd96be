// Encoders: float rows to blocks. Each format implements its own encoder: encode(), and header_of()
// if its rows have a header. engine/quantize/ decides which format a tensor gets.
//
// An encoder that searches takes a factor for each column and multiplies the column's squared error
// by it. The factors describe the inputs of the matmul (engine/quantize/calibration.h).
#pragma once
#include <vector>

#include "quant/format.h"

namespace chaski {

// Whether encode_strip() can produce the format.
bool can_encode(Format f);
bool weighs_columns(Format f);            // whether encode_strip() uses the factors
std::vector<Format> encodable_formats();  // fewest bits first

// n_rows <= 16 rows of floats, row_stride floats apart -> one strip; the other lanes are zero.
// Every value must be finite. `factors`: (cols), above 0, the same for all rows; null: all errors
// count equally. Formats whose encoder has nothing to search for ignore `effort`.
void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip, const float* factors = nullptr, Effort effort = Effort::search);

}  // namespace chaski
