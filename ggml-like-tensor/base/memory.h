// How much memory the system can still give.
#pragma once
#include <cstdint>
#include <optional>

namespace chaski {

// bytes, MemAvailable of /proc/meminfo; nothing where it cannot be read
std::optional<uint64_t> available_memory();

}  // namespace chaski
