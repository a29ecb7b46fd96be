// What rounding with feedback (quant/gptq.h) needs of a model, measured when it is asked for: the
// model reads a text once for every group of weights, and a group is as many as kGroupBytes hold,
// or one. Inputs are those of the model as it is, not of the part that is quantized already.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/calibration.h"
#include "quant/gptq.h"

namespace chaski {

class Feedbacks {
 public:
  static constexpr uint64_t kGroupBytes = uint64_t(1) << 30;  // of Gram matrices
  // More are read by the calibration only, because they are read for every group: so many of them,
  // evenly spread.
  static constexpr int kMostWindows = 64;

  // threads 0: all
  Feedbacks(CalibrationText text, int threads, uint64_t group_bytes = kGroupBytes);

  // The weights in the order in which of() will ask for them; before the first of().
  void expect(std::vector<TensorInfo> weights) { weights_ = std::move(weights); }
  void forget(const std::string& weight);  // one that nobody will ask for
  // What comes into these weights, and all that read the same, is divided by so much, column by
  // column (engine/awq.h); before the first of().
  using Divisors = std::map<std::string, std::vector<float>>;
  void divide(Divisors by) { divisors_ = std::move(by); }
  // Told which window of how many is being read.
  std::function<void(int read, int windows)> on_read;

  // Null for a weight that reads something else for every row (experts), or nothing (the head).
  // From any thread; whoever asks first waits for the group to be measured.
  std::shared_ptr<const Feedback> of(const std::string& weight);

  const CalibrationText& text() const { return text_; }

 private:
  using Group = std::map<std::string, std::shared_ptr<const Feedback>>;
  Group measure(size_t first);

  const CalibrationText text_;
  const int threads_;
  const uint64_t group_bytes_;
  std::vector<TensorInfo> weights_;
  Divisors divisors_;
  std::mutex guard_;
  Group now_, before_;  // a thread may still be at work on the last group
};

}  // namespace chaski
