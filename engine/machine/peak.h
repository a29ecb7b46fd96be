// How fast this machine multiplies with the instruction set in use: the limit of prompts, as
// bandwidth.h is the limit of decoding.
#pragma once
#include "ggml-like-tensor/backend.h"

namespace chaski {

// Operations per second of the instructions that matmuls over weights of this format are made of;
// a multiplication and its addition are two operations. 0 if the backend has no such measurement.
// Takes about 0.1 s.
double measure_peak(const Backend& backend, Format format, int threads);

}  // namespace chaski
