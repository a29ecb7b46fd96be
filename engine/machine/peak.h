// Measures how fast this machine multiplies with the instruction set in use, which limits prompts
// as memory bandwidth limits decoding.
#pragma once
#include "ggml-like-tensor/backend.h"

namespace chaski {

// Operations per second of the instructions that matmuls with this weight format use. A
// multiply-add counts as two operations. 0 if the backend cannot measure it. Takes about 0.1 s.
double measure_peak(const Backend& backend, Format format, int threads);

}  // namespace chaski
