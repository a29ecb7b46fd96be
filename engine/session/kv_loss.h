// What a format of keys and values loses, for help and notes.
#pragma once
#include <string>

#include "quant/format.h"

namespace chaski {

// The KL divergence of the predictions from those with f16, the smallest and the largest of the
// models in docs/quantization.md, such as ".0001 to .0004"; empty for f32 and f16.
std::string kv_loss(Format format);

// A note if a key or value was larger than its format can store since the program started; else
// empty. A device does not report it.
std::string kv_saturation();

}  // namespace chaski
