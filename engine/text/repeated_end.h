// Detects a text that repeats itself at its end.
#pragma once
#include <cstddef>
#include <string_view>

namespace chaski {

// The size in bytes of the shortest text that is repeated `times` times at the end of `text`. It
// has at least `least` and at most 1000 bytes and is more than white space. 0 if there is none.
size_t repeated_end(std::string_view text, size_t times, size_t least);

}  // namespace chaski
