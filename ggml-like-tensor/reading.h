// Which keys and values the attention of a pass reads, and for which tokens: sequences that were
// forked, or branches of a tree of drafts, have the same pages as far as they are one, and those
// are read for all of them together.
#pragma once
#include "ggml-like-tensor/batch.h"
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

// Fills batch.readings, by pool; those of recurrent states stay empty. Whoever changes the cells,
// sequences or tables of a batch calls it before the batch is run.
void plan_readings(Batch& batch, const std::vector<StateLayout::Pool>& pools);

}  // namespace chaski
