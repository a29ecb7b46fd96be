// Weights of a well-known shape, filled with random numbers in memory.
#pragma once
#include <memory>

#include "engine/engine.h"

namespace chaski {

std::shared_ptr<const Weights> random_model(const ShapeOptions& options);

}  // namespace chaski
