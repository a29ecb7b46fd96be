#include <charconv>
#include <cstdlib>
#include <string_view>

#include "engine/passes/mpi_link.h"

namespace chaski {

namespace {

int number_of(const char* given) {
  const std::string_view text = given ? given : "";
  int number = 0;
  if (!text.empty()) std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

}  // namespace

int mpi_ranks() { return number_of(std::getenv("OMPI_COMM_WORLD_SIZE")); }
int mpi_rank() { return number_of(std::getenv("OMPI_COMM_WORLD_RANK")); }

}  // namespace chaski
