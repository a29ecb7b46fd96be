// One tensor on its way from a format to another, strip by strip: decode, check, encode, measure
// what was lost. Which format it goes to is quantize.cpp's decision.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/calibration.h"

namespace chaski {

int64_t strips_of(const TensorInfo& info);  // 1 for a vector

class TensorEncoder {
 public:
  // `file` is for error lines. `source` must outlive the encoder. Several threads may encode at the
  // same time, as long as no two encode the same strip. The search weighs errors by `inputs`, which
  // fit the tensor (InputSquares::fit); null: all count equally.
  TensorEncoder(const TensorSource& source, Format to, std::string file,
                const InputSquares* inputs = nullptr);

  // Writes strip `strip` in the new format to dst. A vector is one strip, in row layout. Bits are
  // kept where the new format is the old one. Throws Error(bad_file), which names the tensor and
  // the place, for a weight that is not finite. A weight outside the new format's range makes
  // error() infinite.
  void encode(int64_t strip, std::byte* dst);
  // The same, but a weight outside the new format's range is an Error(bad_file) too.
  void encode_in_range(int64_t strip, std::byte* dst);

  // What the strips encoded so far have lost: sum (x - x')^2 / sum x^2. Strips are summed in order,
  // so that the figure does not depend on threads.
  double error() const;
  Format to() const { return to_; }
  const TensorInfo& from() const { return source_.info; }
  // spent encoding by all threads together, without reading
  double seconds() const { return 1e-9 * double(nanoseconds_); }

 private:
  struct StripError {
    double lost = 0, all = 0;
  };
  std::vector<float> decoded(Format format, const std::byte* data, int64_t strip) const;
  void write(const std::vector<float>& values, int64_t strip, std::byte* dst) const;
  void check_finite(const std::vector<float>& values, int64_t strip) const;
  [[noreturn]] void refuse(int64_t strip, int64_t index, float value,
                           std::string_view expected) const;
  int rows_in(int64_t strip) const;

  const TensorSource& source_;
  const Format to_;
  const std::string file_;
  // By expert: what the errors of columns count; empty: all the same.
  std::vector<std::vector<float>> factors_{{}};
  std::vector<StripError> errors_;
  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace chaski
