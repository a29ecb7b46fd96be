// Makes models of well-known shapes with random weights.
#pragma once
#include <memory>

#include "engine/passes/engine_options.h"
#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

// Tensors are made when they are read.
ModelSource random_source(const ShapeOptions& options);
TensorSource random_tensor(const TensorInfo& info);

// Fills a matrix with random strips, a vector with ones. Only a few strips are computed and then
// repeated: speed depends on their addresses, not on their values.
void fill_random(const TensorInfo& info, uint64_t seed, std::byte* data);

}  // namespace chaski
