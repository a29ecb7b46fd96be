// Models of well-known shapes and random numbers.
#pragma once
#include <memory>

#include "engine/passes/engine_options.h"
#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

// Of its tensors those are made that are read.
ModelSource random_source(const ShapeOptions& options);
TensorSource random_tensor(const TensorInfo& info);

// A tensor's strips, or a vector of ones. A few strips are made and repeated: the numbers do not
// matter to speed, their addresses do.
void fill_random(const TensorInfo& info, uint64_t seed, std::byte* data);

}  // namespace chaski
