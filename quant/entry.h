// Reads an entry of a constant table in code that a GPU runs too. nvcc gives device code the values
// of host constants but no memory to index. `kTable[i]` there compiles to a trap without a warning;
// the Makefile's rule for .cu files looks for such traps.
#pragma once
#include <array>
#include <cstddef>

namespace chaski {

template <const auto& kTable>
constexpr auto entry_of(int i) {
  constexpr auto table = std::to_array(kTable);
  return table[size_t(i)];
}

}  // namespace chaski
