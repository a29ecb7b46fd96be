// The same matmul by OpenBLAS's sgemm and by chaski's own op, in turns: how good our kernels are
// beside a yardstick that others know.
#pragma once
#include "engine/machine/openblas.h"
#include "engine/measure/bench.h"

namespace chaski {

// Multiplies `tokens` activations with a matrix as large as the first weight of a feed-forward
// layer (its width x the model's). The first case is sgemm's; then there is one for each of
// kSgemmFormats whose blocks fit the shape.
std::vector<BenchCase> bench_sgemm(Engine& engine, const OpenBlas& blas, int tokens,
                                   int repetitions);

constexpr Format kSgemmFormats[] = {Format::f32, Format::f16, Format::q8, Format::q4};

}  // namespace chaski
