// One matmul of a model's shape by OpenBLAS's sgemm and by chaski's own op, in turns: how good our
// kernels are beside a yardstick that others know.
#pragma once
#include "engine/bench/bench.h"
#include "engine/bench/openblas.h"

namespace chaski {

// `tokens` activations times the first weight of a feed-forward layer (its width x the model's).
// First sgemm, then the op with weights in each of kSgemmFormats, as far as the shape allows.
std::vector<BenchCase> bench_sgemm(Engine& engine, const OpenBlas& blas, int tokens,
                                   int repetitions);

constexpr Format kSgemmFormats[] = {Format::f32, Format::f16, Format::q8, Format::q4};

}  // namespace chaski
