#include "engine/text/repeated_end.h"

namespace chaski {

size_t repeated_end(std::string_view text, size_t times, size_t least) {
  constexpr size_t kMost = 1000;
  for (size_t n = least; n * times <= text.size() && n <= kMost; ++n) {
    const std::string_view last = text.substr(text.size() - n);
    size_t found = 1;
    while (found < times && text.substr(text.size() - (found + 1) * n, n) == last) ++found;
    if (found == times && last.find_first_not_of(" \t\r\n") != std::string_view::npos) return n;
  }
  return 0;
}

}  // namespace chaski
