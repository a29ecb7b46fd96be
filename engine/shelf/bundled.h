// The model that is built into the program (models/bundled/).
#pragma once
#include <cstddef>
#include <span>

namespace chaski {

std::span<const std::byte> bundled_model();

}  // namespace chaski
