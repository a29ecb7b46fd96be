#include <charconv>
#include <cstdlib>
#include <string_view>

#include "engine/passes/mpi_link.h"

namespace chaski {

int mpi_ranks() {
  const char* const size = std::getenv("OMPI_COMM_WORLD_SIZE");
  int ranks = 0;
  if (const std::string_view text = size ? size : ""; !text.empty())
    std::from_chars(text.data(), text.data() + text.size(), ranks);
  return ranks;
}

}  // namespace chaski
