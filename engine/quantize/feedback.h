// What rounding with feedback (quant/encode/gptq.h) needs of a model, measured when it is asked
// for, a group of weights at a time. A group is as many whole layers as kGroupBytes hold, or of one
// that is larger as many weights, or one. For each the layers that have them read the text once.
// What comes out of these is kept and goes into the layers of the next group, at most 128 KB for
// each column of what goes from layer to layer, so that every layer reads the text as often as it
// is in groups: once, if it is not larger than that. Where layers share states or more than one
// value goes over (ggml-like-tensor/split.h), those in front read the text again. Inputs are those
// of the model as it is, not of the part that is quantized already.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"
#include "quant/encode/gptq.h"

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
  void skip(const std::string& weight);  // of() will not be called for it
  // What comes into these weights, and all that read the same, is divided by so much, column by
  // column (engine/quantize/awq.h); before the first of().
  using Divisors = std::map<std::string, std::vector<float>>;
  void divide(Divisors by) { divisors_ = std::move(by); }
  // Told which window of how many is being read.
  std::function<void(int read, int windows)> on_read;

  // Null for a weight that reads something else for every row (experts), or nothing (the head).
  // From any thread; whoever asks first waits for the group to be measured.
  std::shared_ptr<const Feedback> of(const std::string& weight);

  const CalibrationText& text() const { return text_; }
  int64_t layers_read() const { return layers_read_; }  // so far, the same one again and again

 private:
  using Group = std::map<std::string, std::shared_ptr<const Feedback>>;
  Group measure(size_t first);
  // Reads the text by the layers of the weights [first, last), and by what is needed in front.
  template <class Look, class OnRead>
  void read(size_t first, size_t last, Look look, OnRead on_read);

  const CalibrationText text_;
  const int threads_;
  const uint64_t group_bytes_;
  std::vector<TensorInfo> weights_;
  Divisors divisors_;
  std::mutex guard_;
  Group now_, before_;                    // a thread may still be at work on the last group
  std::vector<bool> cuts_;                // by layer: whether a reading may begin there
  std::vector<std::vector<float>> rows_;  // by window: what goes into layer at_
  int at_ = 0;
  int64_t layers_read_ = 0;
};

}  // namespace chaski
