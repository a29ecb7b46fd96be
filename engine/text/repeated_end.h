// A text that says the same over and over.
#pragma once
#include <cstddef>
#include <string_view>

namespace chaski {

// The bytes of the shortest text, of at least `least` and 1000 at most, that stands at the end
// `times` times in a row and is more than space; 0 if there is none.
size_t repeated_end(std::string_view text, size_t times, size_t least);

}  // namespace chaski
