// How many threads of a crew work on a pass. A thread that the system suspends in the middle of its
// work delays all others, so fewer threads are faster on a busy machine. Each step's measurements
// decide. If others waited too long for a late thread, there is one thread fewer at once. After
// some time one more is tried; that time grows with each trial that fails.
//
// crew.h has the threads themselves: how they wait and which thread does what. Times are
// nanoseconds of any steady clock.
#pragma once
#include <cstdint>

namespace chaski {

class ThreadCount {
 public:
  // At most `most` threads; with `fixed` always exactly `most`.
  explicit ThreadCount(int most, bool fixed = false);

  int now() const { return allowed_ < worth_ ? allowed_ : worth_; }
  int most() const { return most_; }

  // Begins a pass for which at most `worth` threads pay off.
  void begin(int worth);
  // A step on now() threads ended at time `at` and took `took`. `work` is the time one thread would
  // need at the pace of the fastest thread; `chunk` is the time of one chunk. Returns true if now()
  // has changed.
  bool step(int64_t at, int64_t took, int64_t work, int64_t chunk);
  // The same for a step that one thread did alone.
  bool step_alone(int64_t at, int64_t took);

  // Mean number of working threads over time; 0 before the first step.
  double average() const;

 private:
  bool too_many(int64_t took, int64_t work, int64_t chunk) const;
  void allow(int threads, int64_t at);
  bool try_one_more(int64_t at);

  int most_;
  bool fixed_;
  int worth_;                             // of this pass
  int allowed_;                           // limit by the late threads seen on this machine
  int64_t window_ = 0, window_work_ = 0;  // over the last steps with this number of threads
  int64_t changed_ = 0;                   // when allowed_ last changed
  bool raised_ = false;                   // whether that change was an increase
  int64_t patience_;                      // time until the next trial
  double used_ = 0, time_ = 0;
};

}  // namespace chaski
