// The decimal numbers of a grid between two limits, as JSON spells them.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/rules.h"

namespace chaski {

// A number times a power of ten. It holds 64-bit integers with up to 17 decimals.
__extension__ typedef __int128 Scaled;

constexpr int kMostDecimals = 17;
Scaled power_of_ten(int exponent);  // up to 38

// `digits` times 10^-decimals.
struct Decimal {
  Scaled digits = 0;
  int decimals = 0;

  // Of a number as JSON spells it. Nothing beyond 10^20 or with more than kMostDecimals decimals,
  // which `round` rounds away: down (-1), up (1), or not at all (0).
  static std::optional<Decimal> of(std::string_view text, int round = 0);
  // In units of 10^-decimals. Digits that do not fit are rounded down, or up.
  Scaled in_units(int units, bool up = false) const;
};

// The multiples of `step` from `least` to `most`. The three are whole numbers of units; a unit is
// 10^-decimals. A missing limit becomes 15 digits before the point, which a double holds, or more
// if the other limit needs them.
struct DecimalRange {
  Scaled step = 1;
  int decimals = 0;
  std::optional<Scaled> least, most;
  bool shortest = false;  // fractions do not end with 0, so each number has one spelling

  // Whether part() supports it: a step of at most 1000 units, or at most 1000 multiples.
  bool is_supported() const;
  // Without the numbers `except`, which are in units, too.
  Rules::Part part(Rules& rules, std::vector<Scaled> except = {}) const;
};

}  // namespace chaski
