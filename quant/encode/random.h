// Random weights in any format, with the spread of a trained matrix. For benchmarks without a model
// file, and for tests.
#pragma once
#include <cstdint>

#include "quant/format.h"

namespace chaski {

// 16 rows of cols values with root mean square `rms`, from seed alone.
void random_strip(Format f, uint64_t seed, float rms, int64_t cols, std::byte* strip);
// One row in row layout.
void random_row(Format f, uint64_t seed, float rms, int64_t cols, std::byte* row);

}  // namespace chaski
