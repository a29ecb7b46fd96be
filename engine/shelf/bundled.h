// The model that is part of the binary (models/bundled/).
#pragma once
#include <cstddef>
#include <span>

namespace chaski {

std::span<const std::byte> bundled_model();

}  // namespace chaski
