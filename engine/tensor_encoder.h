// One tensor on its way from a format to another, strip by strip: decode, check, encode, measure
// what was lost. Which format it goes to is quantize.cpp's decision.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

int64_t strips_of(const TensorInfo& info);  // 1 for a vector

class TensorEncoder {
 public:
  // `file` is for error lines. `source` must outlive the encoder; of its strips each may be encoded
  // by another thread.
  TensorEncoder(const TensorSource& source, Format to, std::string file);

  // Writes strip `strip` in the new format to dst; a vector has one, in row layout. The same format
  // gives the same bits. Throws Error(bad_file) for a weight that is not finite, naming the tensor
  // and the place.
  void encode(int64_t strip, std::byte* dst);
  // The same; a weight that is outside the new format's range is also an Error(bad_file), where
  // encode() gives an infinite error.
  void encode_in_range(int64_t strip, std::byte* dst);

  // Over the strips encoded so far: sum (x - x')^2 / sum x^2. Summed strip by strip in order, so it
  // does not depend on threads.
  double error() const;
  Format to() const { return to_; }
  const TensorInfo& from() const { return source_.info; }
  // of all threads, reading not included
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
  std::vector<StripError> errors_;
  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace chaski
