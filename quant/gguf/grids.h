// The grids of GGUF's IQ formats: which tuple of small digits each index means. A tuple has 8
// digits below 3, or 4 digits below 8. Read as a number, the first digit lowest, tuples ascend with
// the index.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace chaski {

class Grid {
 public:
  // `used`: a bit for each tuple (grids.cpp).
  Grid(int base, int digits, std::string_view used);
  // 2 bits a digit below 3, 3 bits a digit below 8, the first lowest.
  int tuple(int index) const { return tuples_[size_t(index)]; }
  int digit(int index, int i) const { return tuple(index) >> bits_ * i & ((1 << bits_) - 1); }
  // For a tuple that has no index: the index of one near it.
  int index_of(int tuple) const;

  int size() const { return int(tuples_.size()); }
  int bits() const { return bits_; }

 private:
  int bits_;
  std::vector<uint16_t> tuples_;
};

const Grid& iq2_xxs_grid();
const Grid& iq2_xs_grid();
const Grid& iq2_s_grid();
const Grid& iq1_grid();
const Grid& iq3_xxs_grid();
const Grid& iq3_s_grid();

}  // namespace chaski
