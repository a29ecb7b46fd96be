// Times the same matmul by OpenBLAS's sgemm and by chaski's own op, in turns, to compare our
// kernels with a well-known reference.
#pragma once
#include "engine/machine/openblas.h"
#include "engine/measure/bench.h"

namespace chaski {

// Multiplies `tokens` activations by a matrix of the size of a feed-forward layer's first weight
// (its width x the model's). The first case is sgemm; then comes one for each of kSgemmFormats
// whose blocks fit the shape.
std::vector<BenchCase> bench_sgemm(Engine& engine, const OpenBlas& blas, int tokens,
                                   int repetitions);

constexpr Format kSgemmFormats[] = {Format::f32, Format::f16, Format::q8, Format::q4};

}  // namespace chaski
