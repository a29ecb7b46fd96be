// How fast this machine multiplies with the instruction set in use: the limit of prompts, as
// bandwidth.h is the limit of decoding.
#pragma once
#include "ggml-like-tensor/backend.h"

namespace chaski {

// Operations per second, two for a multiplication and its addition, as matmuls of weights of this
// format multiply. 0 if the backend cannot tell. Takes about 0.1 s.
double measure_peak(const Backend& backend, Format format, int threads);

}  // namespace chaski
