// Measures how fast this machine multiplies with the instruction set in use, which limits prompts
// as memory bandwidth limits decoding.
#pragma once
#include "ggml-like-tensor/backend.h"

namespace chaski {

// Operations per second of `threads` threads that call `peak`, one of FormatKernels. A multiply-add
// counts as two operations. Takes about 0.1 s.
double measure_peak(int64_t (*peak)(int64_t rounds), int threads);

}  // namespace chaski
