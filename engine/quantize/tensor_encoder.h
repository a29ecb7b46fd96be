// One tensor on its way from a format to another, strip by strip: decode, check, encode, measure
// what was lost. Which format it goes to is quantize.cpp's decision.
#pragma once
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "engine/quantize/feedback.h"

namespace chaski {

int64_t strips_of(const TensorInfo& info);  // 1 for a vector

// How a weight is rounded: each for itself after a search for the scales, or without one
// (quant/encode/fast.h), or with feedback (quant/encode/gptq.h). `best`: by search or feedback,
// whichever loses less of a few strips' outputs.
enum class RoundingMethod { best, search, gptq, fast };

// What `method` needs of the inputs; null: not known.
struct Rounding {
  const InputSquares* inputs = nullptr;  // fit the tensor (InputSquares::fit)
  Feedbacks* feedbacks = nullptr;
  RoundingMethod method = RoundingMethod::best;
};

class TensorEncoder {
 public:
  // `file` is for error lines. `source` must outlive the encoder. Several threads may encode at the
  // same time, as long as no two encode the same strip. Without inputs all errors count equally.
  TensorEncoder(const TensorSource& source, Format to, std::string file, Rounding rounding = {});

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
  // The same with every column counted as the search does.
  double weighed_error() const;
  // What the outputs of a few strips lose, sum (x w - x w')^2 / sum (x w)^2 over the text that was
  // read: by either method, and which was taken. 0 where there is no feedback.
  struct Outputs {
    double search = 0, gptq = 0;
    bool feeds_back = false;
    double lost() const { return feeds_back ? gptq : search; }
  };
  const Outputs& outputs() const { return outputs_; }

  // What remains to be known of a tensor whose strips are all encoded.
  struct Notes {
    double lost = 0, all = 0;  // as error() has them
    Outputs outputs;
    uint64_t read = 0;  // a sum over the bytes of the source
  };
  Notes notes() const;
  // Takes what is said of it from an earlier run, in place of encoding. False if the source is not
  // what it was; it is read whole.
  bool recall(const Notes& notes);

  Format to() const { return to_; }
  const TensorInfo& from() const { return source_.info; }
  // spent encoding by all threads together, without reading
  double seconds() const { return 1e-9 * double(nanoseconds_); }

 private:
  struct StripError {
    double lost = 0, all = 0;
    double weighed_lost = 0, weighed_all = 0;  // where there are factors
    uint64_t read = 0;                         // sum of the strip's bytes in the source
  };
  uint64_t bytes_of_strip() const;  // of the source
  uint64_t sum_of_strips() const;
  std::vector<float> decoded(Format format, const std::byte* data, int64_t strip) const;
  void write(const std::vector<float>& values, int64_t strip, std::byte* dst);
  void search(const std::vector<float>& values, int64_t strip, std::byte* dst) const;
  void compare(const Feedback& feedback);
  void weigh(const std::vector<float>& before, const std::vector<float>& after, int64_t strip);
  void check_finite(const std::vector<float>& values, int64_t strip) const;
  [[noreturn]] void refuse(int64_t strip, int64_t index, float value,
                           std::string_view expected) const;
  int rows_in(int64_t strip) const;
  // Of the expert that the strip is of; empty: all the same.
  const std::vector<float>& factors(int64_t strip) const {
    return factors_[size_t(strip * int64_t(factors_.size()) / strips_of(from()))];
  }

  const TensorSource& source_;
  const Format to_;
  const std::string file_;
  const Rounding rounding_;
  std::once_flag compared_;
  Outputs outputs_;
  // By expert: what the errors of columns count; empty: all the same.
  std::vector<std::vector<float>> factors_{{}};
  std::vector<StripError> errors_;
  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace chaski
