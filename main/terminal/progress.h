// Lines on the terminal that show how far a long job is. ProgressBar: bar, share, speed, time left.
// Nothing if stderr is not a terminal.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/shelf/model_file.h"

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

// "reading 1024 of 2082 tokens, 3 s left": a line for a prompt that takes more than a moment, drawn
// by a thread of its own, because a portion of the prompt may take seconds. Nothing if stderr is
// not a terminal, or if text stands in front of the cursor.
class ReadingLine {
 public:
  explicit ReadingLine(bool wanted = true);
  ~ReadingLine();  // takes the line away
  ReadingLine(const ReadingLine&) = delete;
  ReadingLine& operator=(const ReadingLine&) = delete;

  // How many tokens are known; the line goes away with the last.
  void show(int known, int all);

 private:
  using Clock = std::chrono::steady_clock;
  void draw_now_and_then();
  std::string line() const;
  void end();

  bool enabled_;
  std::mutex mutex_;  // of all below
  std::condition_variable over_;
  bool is_over_ = false;
  int first_ = -1, known_ = 0, all_ = 0;  // first_: known when it began
  Clock::time_point began_, told_;
  std::thread drawing_;
};

}  // namespace chaski
