// A line on the terminal that shows how far a long job is: bar, share, speed, time left. Nothing if
// stderr is not a terminal.
#pragma once
#include <chrono>
#include <string>

#include "engine/model_file.h"

namespace chaski {

// How many `unit` the whole job has; the speed is shown in them: "million weights", "MB".
struct ProgressScale {
  double amount = 0;
  std::string unit;
};

class ProgressBar {
 public:
  explicit ProgressBar(ProgressScale scale);
  ~ProgressBar();  // takes the line away
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void show(const FileProgress& progress);
  OnProgress callback() {
    return [this](const FileProgress& progress) { show(progress); };
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string line(const FileProgress& progress) const;

  ProgressScale scale_;
  bool enabled_, shown_ = false;
  uint64_t before_ = 0;  // done when it was shown first
  Clock::time_point started_, last_;
};

}  // namespace chaski
