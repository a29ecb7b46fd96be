// Converts one tensor from one format to another, strip by strip: decodes, checks, encodes, and
// measures the error. The format comes from a budget or a recipe (budget.h), from a mixture
// (mixture.h), or from --type (choose_formats.cpp).
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/quantize/feedback.h"

namespace chaski {

int64_t strips_of(const TensorInfo& info);  // 1 for a vector

// How a weight is rounded:
//   search: each value by itself, after a search for the scales.
//   gptq: with feedback (quant/encode/gptq.h).
//   best: by search or gptq, whichever loses less of the outputs of a few strips.
//   fast: each value by itself, without a search (Effort::fast).
enum class RoundingMethod { best, search, gptq, fast };

// The method, and what it needs to know about the inputs; null: unknown.
struct Rounding {
  const InputSquares* inputs = nullptr;  // must fit the tensor (InputSquares::fit)
  Feedbacks* feedbacks = nullptr;
  RoundingMethod method = RoundingMethod::best;
};

class TensorEncoder {
 public:
  // `file` appears in error messages. `source` must outlive the encoder. Several threads may encode
  // different strips at the same time. Without inputs all errors count equally.
  TensorEncoder(const TensorSource& source, Format to, std::string file, Rounding rounding = {});

  // Writes strip `strip` in the new format to dst. A vector is one strip, in row layout. If the
  // format does not change, the bits are copied. Throws Error(bad_file) with tensor and position
  // for a weight that is not finite. A weight outside the new format's range makes error()
  // infinite.
  void encode(int64_t strip, std::byte* dst);
  // The same, but also throws Error(bad_file) for a weight outside the new format's range.
  void encode_in_range(int64_t strip, std::byte* dst);

  // The error of the strips encoded so far: sum (x - x')^2 / sum x^2. Strips are summed in order,
  // so that it does not depend on threads.
  double error() const;
  // The same, each column weighted by its factor.
  double weighed_error() const;
  // The error of the outputs of a few strips, sum (x w - x w')^2 / sum (x w)^2 over the calibration
  // text, by either method, and which method was taken. 0 without feedback.
  struct Outputs {
    double search = 0, gptq = 0;
    bool feeds_back = false;
    double lost() const { return feeds_back ? gptq : search; }
  };
  Outputs outputs() const;  // of experts, the mean
  // Experts with so few tokens that their rows were rounded by search, although others were not.
  std::vector<int64_t> searched() const;

  // The results of a finished tensor, which a later run needs if this one is killed.
  struct Notes {
    double lost = 0, all = 0;  // as in error()
    Outputs outputs;
    uint64_t read = 0;  // a checksum of the source's bytes
  };
  Notes notes() const;
  // Takes over the notes of an earlier run instead of encoding. Reads the whole source, and returns
  // false if it has changed since.
  bool recall(const Notes& notes);

  Format to() const { return to_; }
  const TensorInfo& from() const { return source_.info; }
  // spent on encoding by all threads together, without reading
  double seconds() const { return 1e-9 * double(nanoseconds_); }

 private:
  struct StripError {
    double lost = 0, all = 0;
    double weighed_lost = 0, weighed_all = 0;  // if there are factors
    uint64_t read = 0;                         // checksum of the strip's bytes in the source
  };
  uint64_t bytes_of_strip() const;  // of the source
  uint64_t sum_of_strips() const;
  std::vector<float> decoded(Format format, const std::byte* data, int64_t strip) const;
  void write(const std::vector<float>& values, int64_t strip, std::byte* dst);
  void search(const std::vector<float>& values, int64_t strip, std::byte* dst) const;
  void compare(const Feedback& feedback, int64_t expert);
  void weigh(const std::vector<float>& before, const std::vector<float>& after, int64_t strip);
  void check_finite(const std::vector<float>& values, int64_t strip) const;
  [[noreturn]] void refuse(int64_t strip, int64_t index, float value,
                           std::string_view expected) const;
  int rows_in(int64_t strip) const;
  int64_t experts() const {
    return rounding_.inputs ? std::max<int64_t>(rounding_.inputs->experts(), 1) : 1;
  }
  // Of the strip's expert; empty: all columns count equally.
  const std::vector<float>& factors(int64_t strip) const {
    return factors_[size_t(strip * int64_t(factors_.size()) / strips_of(from()))];
  }

  const TensorSource& source_;
  const Format to_;
  const std::string file_;
  const Rounding rounding_;
  // By expert, whether and how it is rounded with feedback.
  struct Compared {
    std::once_flag once;
    bool known = false;
    Outputs outputs;
  };
  std::vector<Compared> compared_;
  std::optional<Outputs> recalled_;
  // By expert: the factors of the columns; empty: all count equally.
  std::vector<std::vector<float>> factors_{{}};
  std::vector<StripError> errors_;
  std::atomic<int64_t> nanoseconds_ = 0;
};

}  // namespace chaski
