// Weights of a well-known shape, filled with random numbers in memory.
#pragma once
#include <memory>

#include "engine/engine.h"

namespace chaski {

std::shared_ptr<const Weights> random_model(const ShapeOptions& options);

// A tensor's strips, or a vector of ones. A few strips are made and repeated: the numbers do not
// matter to speed, their addresses do.
void fill_random(const TensorInfo& info, uint64_t seed, std::byte* data);

}  // namespace chaski
