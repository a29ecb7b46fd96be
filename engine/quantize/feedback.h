// The Gram matrices that rounding with feedback (quant/encode/gptq.h) needs. They are measured on
// demand, one group of weights at a time. A group holds as many whole layers as fit into
// kGroupBytes. A larger layer is split by weight, at least one weight a group.
//
// For each group, the layers of its weights read the text once. Their outputs are kept as the
// inputs of the next group's layers: at most 128 KB for each column of the hidden state. So each
// layer reads the text once for each group that it is in. If layers share states, or pass on more
// than one value (ggml-like-tensor/split.h), the earlier layers read the text again.
//
// The inputs are those of the original model, not of the weights that are quantized already.
#pragma once
#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/quantize/calibration.h"
#include "quant/encode/gptq.h"

namespace chaski {

// The rows of a weight that are rounded with one Gram matrix.
struct WeightRows {
  std::string weight;
  int64_t expert = -1;  // -1: all rows
  auto operator<=>(const WeightRows&) const = default;
};

class Feedbacks {
 public:
  static constexpr uint64_t kGroupBytes = uint64_t(1) << 30;  // Gram matrices of a group
  // The calibration may have more windows. Of those, this many are read for every group, evenly
  // spread.
  static constexpr int kMostWindows = 64;

  // threads 0: all cores
  Feedbacks(CalibrationText text, int threads, uint64_t group_bytes = kGroupBytes);

  struct Expected {
    WeightRows rows;
    int64_t cols;
  };
  // Sets the weights in the order in which of() will be called. Call it before the first of().
  void expect(std::vector<Expected> weights) { weights_ = std::move(weights); }
  void skip(const std::string& weight);  // of() will not be called for it, nor for its experts
  // Divides the inputs of these weights, and of all that read the same values, column by column
  // (engine/quantize/awq.h). Call it before the first of().
  using Divisors = std::map<std::string, std::vector<float>>;
  void divide(Divisors by) { divisors_ = std::move(by); }
  // Called for each window that is read, with its number and the number of all windows.
  std::function<void(int read, int windows)> on_read;

  // Null for a weight that is not measured (the head, or a weight of several experts as a whole),
  // and for an expert with fewer tokens than columns. Callable from any thread; the first call for
  // a group measures it, others wait.
  std::shared_ptr<const Feedback> of(const WeightRows& rows);

  const CalibrationText& text() const { return text_; }
  int64_t layers_read() const {
    return layers_read_;
  }  // so far; a layer counts each time it reads the text

 private:
  using Group = std::map<WeightRows, std::shared_ptr<const Feedback>>;
  Group measure(size_t first);
  // Runs the text through the layers of the weights [first, last), and earlier ones if needed.
  template <class Look, class OnRead>
  void read(size_t first, size_t last, Look look, OnRead on_read);

  const CalibrationText text_;
  const int threads_;
  const uint64_t group_bytes_;
  std::vector<Expected> weights_;
  Divisors divisors_;
  std::mutex guard_;
  Group now_, before_;                    // a thread may still use the previous group
  std::vector<bool> cuts_;                // by layer: whether reading can begin there
  std::vector<std::vector<float>> rows_;  // by window: the input of layer at_
  int at_ = 0;
  int64_t layers_read_ = 0;
};

}  // namespace chaski
