// Progress of long jobs in one line of the terminal. Prints nothing if stderr is not a terminal.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "engine/shelf/model_file.h"

namespace chaski {

// The size of the whole job in `unit`s, such as "MB". The speed is shown in them.
struct ProgressScale {
  double amount = 0;
  std::string unit;
};

// Shows a bar, the share that is done, the speed and the time left.
class ProgressBar {
 public:
  explicit ProgressBar(ProgressScale scale);
  ~ProgressBar();  // removes the line
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
  uint64_t before_ = 0;  // done when the bar was first shown
  Clock::time_point started_, last_;
};

// Shows "reading 1024 of 2082 tokens, 3 s left" for a prompt that takes more than half a second. A
// thread draws the line, because one portion of the prompt may take seconds. Prints nothing if
// stderr is not a terminal, or if there is text before the cursor.
class ReadingLine {
 public:
  explicit ReadingLine(bool wanted = true);
  ~ReadingLine();  // removes the line
  ReadingLine(const ReadingLine&) = delete;
  ReadingLine& operator=(const ReadingLine&) = delete;

  // `known` of `all` tokens are read. The line is removed after the last one.
  void show(int known, int all);

 private:
  using Clock = std::chrono::steady_clock;
  void draw_repeatedly();
  std::string line() const;
  void end();

  bool enabled_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable over_;
  bool is_over_ = false;
  int first_ = -1, known_ = 0, all_ = 0;  // first_: known at the first call
  Clock::time_point began_, updated_;
  std::thread drawing_;
};

}  // namespace chaski
