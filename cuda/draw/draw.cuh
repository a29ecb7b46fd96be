// Draws tokens on the device, so that a decode step copies a token to the host instead of a row of
// logits. This is the draw of engine/sampling/sampler.h: the same logits give the same token
// (ggml-like-tensor/noise.h).
#pragma once
#include "cuda/backend.h"
#include "cuda/table.h"

namespace chaski {

// Bytes of scratch for `rows` rows of `columns` logits.
size_t draw_scratch(int64_t rows, int64_t columns);

// Draws tokens[r] from row r of logits, for the position after that of outputs[r]. It is -1 if a
// logit of the row is not finite. `settings` has one entry a row; the kernels read it when they
// run.
void launch_draw(const LaunchContext& c, const CudaDraw* settings, const float* logits,
                 int64_t rows, int64_t columns, int32_t* tokens);

}  // namespace chaski
