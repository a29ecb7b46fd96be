// Encoders: float rows to blocks. How a format does it stands with the format (its encode(), and
// header_of() where a row has a header); which format a tensor gets is decided elsewhere
// (engine/quantize.h).
#pragma once
#include <vector>

#include "quant/format.h"

namespace chaski {

// Formats encode_strip() can produce; all of them, fewest bits first.
bool can_encode(Format f);
std::vector<Format> encodable_formats();

// n_rows <= 16 rows of floats, row_stride floats apart -> one strip; the other lanes are zero.
// Every value must be finite.
void encode_strip(Format f, const float* rows, int64_t row_stride, int n_rows, int64_t cols,
                  std::byte* strip);

}  // namespace chaski
