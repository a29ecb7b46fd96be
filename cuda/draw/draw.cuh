// Draws tokens on the device, so that a decode step brings a token to the host and not a row of
// logits: the draw of engine/sampling/sampler.h, the same token for the same logits
// (ggml-like-tensor/noise.h).
#pragma once
#include "cuda/backend.h"
#include "cuda/table.h"

namespace chaski {

// Bytes of scratch for `rows` rows of `columns` logits.
size_t draw_scratch(int64_t rows, int64_t columns);

// tokens[r] is drawn from row r of logits, at the position after outputs[r]'s; -1 if a logit of the
// row is not finite. `settings`: of each row, read when the kernels run.
void launch_draw(const LaunchContext& c, const CudaDraw* settings, const float* logits,
                 int64_t rows, int64_t columns, int32_t* tokens);

}  // namespace chaski
