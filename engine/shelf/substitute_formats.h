// Formats that some weights get instead of the requested one.
#pragma once
#include <cstdint>

#include "quant/formats.h"

namespace chaski {

// The smallest format for the head and the token embedding when the other weights get `type`.
Format least_of_head(Format type, int64_t cols);

// The format for a weight whose columns do not fill the blocks of `type`. For blocks of 256 columns
// it is a GGUF format with blocks of 32 and about as many bits, as in llama.cpp, else f16.
Format stand_in(Format type, int64_t cols);

}  // namespace chaski
