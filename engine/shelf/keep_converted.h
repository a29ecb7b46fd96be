// How much disk the kept conversions of models may take (converted.h).
#pragma once
#include <cstdint>
#include <optional>

namespace chaski {

// The most bytes of all kept files. 0: no model is kept. nullopt: the limit is a tenth of (free
// disk space + the kept files), and models smaller than kLeastConverted are not kept.
using KeepConverted = std::optional<uint64_t>;
// A smaller model is converted in some hundredths of a second.
constexpr uint64_t kLeastConverted = 16 << 20;

}  // namespace chaski
