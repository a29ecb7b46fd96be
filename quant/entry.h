// An entry of a constant table, for code that a GPU runs too. nvcc gives device code the values of
// a host's constants but no memory to index: what does `kTable[i]` there becomes a trap, without a
// warning (the rule for .cu files in the Makefile looks for one).
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
