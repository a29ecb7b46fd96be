// Arithmetic for sizes that come from a file. It records an overflow instead of wrapping, so one
// check at the end of a formula is enough. `Checked(rows) * cols * 4` has no value if any step
// exceeded the range of uint64_t.
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
