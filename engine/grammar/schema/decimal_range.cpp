#include "engine/grammar/schema/decimal_range.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <tuple>

namespace chaski {

namespace {

// A double holds 15 digits. A reader would get another number if there were more.
constexpr int kSureDigits = 15;
// Up to kMostStep units an automaton counts remainders. For a larger step, up to kMostListed
// multiples are listed.
constexpr Scaled kMostStep = 1000, kMostListed = 1000;

std::string digits_of(Scaled x, size_t least) {
  std::string text;
  for (; x > 0; x /= 10) text.insert(text.begin(), char('0' + int(x % 10)));
  return text.size() < least ? std::string(least - text.size(), '0') + text : text;
}

struct Limits {
  Scaled low, high;
};

Limits limits_of(const DecimalRange& r) {
  const Scaled sure = power_of_ten(kSureDigits + r.decimals) - 1;
  // Numbers near a limit that is beyond `sure` may have a digit more than it.
  const auto beyond = [&](Scaled limit) { return std::max(sure, limit > sure ? limit * 10 : 0); };
  return {r.least ? *r.least : -beyond(r.most ? -*r.most : 0),
          r.most ? *r.most : beyond(r.least ? *r.least : 0)};
}

// The smallest and the largest multiple within the limits, divided by the step.
Limits factors_of(Scaled step, const Limits& limits) {
  const auto below = [&](Scaled x) { return x / step - (x % step < 0); };
  return {-below(-limits.low), below(limits.high)};
}

std::string spelled(Scaled x, int decimals) {
  std::string text = digits_of(x < 0 ? -x : x, size_t(decimals) + 1);
  if (decimals > 0) {
    text.insert(text.size() - size_t(decimals), ".");
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return x < 0 ? "-" + text : text;
}

// An automaton over decimal digits. Its states hold the remainder of the digits read so far,
// divided by the step.
class Multiples {
 public:
  Multiples(Rules& rules, int64_t step, int decimals, bool shortest)
      : rules_(rules),
        step_(step),
        shortest_(shortest),
        decimals_(size_t(decimals)),
        end_(rules.state()) {
    for (int i = 0; i <= decimals; ++i) powers_.push_back(int64_t(power_of_ten(i) % step));
  }
  Rules::State end() const { return end_; }

  // Adds the multiples of the step from `least` >= 0 to `most`. `from` is the state before their
  // first digit.
  void add(Rules::State from, Scaled least, Scaled most) {
    while (least <= most) {
      low_ = digits_of(least, decimals_ + 1);
      const Scaled last = std::min(most, power_of_ten(int(low_.size())) - 1);
      high_ = digits_of(last, low_.size());
      rules_.skip(from, at(0, 0, true, true, false, false));
      least = last + 1;
    }
  }

 private:
  // The state after `digits` digits. `on_low` and `on_high` say whether they equal the beginning of
  // the limit. `point` says whether the decimal point was read, and `zero` whether the last digit
  // is a 0 that must not end the number.
  Rules::State at(size_t digits, int64_t rest, bool on_low, bool on_high, bool point, bool zero) {
    const size_t left = low_.size() - digits;
    const auto key = std::tuple(left, rest, point, zero);
    const bool free = !on_low && !on_high;
    if (const auto known = known_.find(key); free && known != known_.end()) return known->second;
    const Rules::State here = rules_.state();
    if (free) known_[key] = here;
    const bool at_point = left == decimals_ && !point;
    // The digits that are not written are zeros.
    if ((at_point || (point && left < decimals_ && !zero)) && rest * powers_[left] % step_ == 0 &&
        (!on_low || low_.find_first_not_of('0', digits) == low_.npos))
      rules_.skip(here, end_);
    if (at_point) {
      if (decimals_ > 0)
        rules_.byte(here, at(digits, rest, on_low, on_high, true, false), '.', '.');
      return here;
    }
    if (left == 0) return here;
    const char first = on_low ? low_[digits] : '0', last = on_high ? high_[digits] : '9';
    for (char d = first; d <= last; ++d) {
      const auto next = [&](char digit) {
        return at(digits + 1, (rest * 10 + digit - '0') % step_, on_low && digit == first,
                  on_high && digit == last, point, shortest_ && point && digit == '0');
      };
      // Digits with the same consequence share an edge.
      const Rules::State then = next(d);
      char until = d;
      while (step_ == 1 && until + 1 < last && d > first) ++until;
      rules_.byte(here, then, uint8_t(d), uint8_t(until));
      d = until;
    }
    return here;
  }

  Rules& rules_;
  const int64_t step_;
  const bool shortest_;
  const size_t decimals_;
  const Rules::State end_;
  std::vector<int64_t> powers_;
  std::string low_, high_;
  std::map<std::tuple<size_t, int64_t, bool, bool>, Rules::State> known_;
};

}  // namespace

Scaled power_of_ten(int exponent) {
  Scaled power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

std::optional<Decimal> Decimal::of(std::string_view text, int round) {
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  const bool negative = text.starts_with('-');
  Decimal d;
  bool point = false;
  for (const char c : text.substr(0, e)) {
    if (c == '.') point = true;
    if (c < '0' || c > '9') continue;
    if (d.digits >= power_of_ten(36)) return std::nullopt;
    d.digits = d.digits * 10 + (c - '0');
    d.decimals += point ? 1 : 0;
  }
  if (e < text.size()) d.decimals -= std::atoi(std::string(text.substr(e + 1)).c_str());
  while (d.decimals > 0 && d.digits % 10 == 0 && d.digits != 0) d.digits /= 10, --d.decimals;
  if (d.digits == 0) return Decimal{};
  if (negative) d.digits = -d.digits;
  for (; d.decimals < 0; ++d.decimals) {
    if (d.digits > power_of_ten(20) || -d.digits > power_of_ten(20)) return std::nullopt;
    d.digits *= 10;
  }
  if (d.decimals > kMostDecimals) {
    if (round == 0) return std::nullopt;
    if (d.decimals > kMostDecimals + 36)
      d = {round > 0 ? negative ? 0 : 1 : negative ? -1 : 0, kMostDecimals};
    else
      d = {d.in_units(kMostDecimals, round > 0), kMostDecimals};
  }
  const Scaled whole = d.digits / power_of_ten(d.decimals);
  if (whole > power_of_ten(20) || -whole > power_of_ten(20)) return std::nullopt;
  return d;
}

Scaled Decimal::in_units(int units, bool up) const {
  if (decimals <= units) return digits * power_of_ten(units - decimals);
  const Scaled unit = power_of_ten(decimals - units), whole = digits / unit, rest = digits % unit;
  return whole + (up && rest > 0 ? 1 : !up && rest < 0 ? -1 : 0);
}

bool DecimalRange::is_supported() const {
  const Limits factors = factors_of(step, limits_of(*this));
  return step <= kMostStep || factors.high - factors.low < kMostListed;
}

Rules::Part DecimalRange::part(Rules& rules, std::vector<Scaled> except) const {
  const Limits limits = limits_of(*this), factors = factors_of(step, limits);
  std::sort(except.begin(), except.end());
  if (step > kMostStep) {
    std::vector<Rules::Part> parts;
    for (Scaled i = factors.low; i <= factors.high; ++i)
      if (!std::binary_search(except.begin(), except.end(), i * step))
        parts.push_back(rules.text(spelled(i * step, decimals)));
    return rules.either(parts);
  }
  Multiples multiples(rules, int64_t(step), decimals, shortest);
  const Rules::State begin = rules.state();
  const Rules::Part minus = rules.text("-");
  rules.skip(begin, minus.begin);
  const auto add = [&](Scaled low, Scaled high) {
    if (low < 0 && low <= high) multiples.add(minus.end, high < 0 ? -high : 1, -low);
    if (high >= 0 && low <= high) multiples.add(begin, std::max<Scaled>(low, 0), high);
  };
  Scaled low = limits.low;
  for (const Scaled x : except) {
    if (x < low || x > limits.high) continue;
    add(low, x - 1);
    low = x + 1;
  }
  add(low, limits.high);
  return {begin, multiples.end()};
}

}  // namespace chaski
