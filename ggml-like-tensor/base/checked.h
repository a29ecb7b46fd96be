// Sizes that come from a file: arithmetic that remembers an overflow instead of wrapping, so that
// the one check stands at the end of a formula. `Checked(rows) * cols * 4` has no value once any
// step left the range of uint64_t.
#pragma once
#include <cstdint>
#include <optional>

namespace chaski {

class Checked {
 public:
  constexpr Checked(uint64_t value) : value_(value) {}
  constexpr std::optional<uint64_t> get() const {
    return ok_ ? std::optional<uint64_t>(value_) : std::nullopt;
  }
  constexpr bool at_most(uint64_t limit) const { return ok_ && value_ <= limit; }

  friend constexpr Checked operator+(Checked a, Checked b) {
    Checked r(0);
    r.ok_ = !__builtin_add_overflow(a.value_, b.value_, &r.value_) && a.ok_ && b.ok_;
    return r;
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    Checked r(0);
    r.ok_ = !__builtin_mul_overflow(a.value_, b.value_, &r.value_) && a.ok_ && b.ok_;
    return r;
  }

 private:
  uint64_t value_;
  bool ok_ = true;
};

}  // namespace chaski
