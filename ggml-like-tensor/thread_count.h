// How many threads of a crew work on a pass. A thread that the system has put to sleep in the
// middle of its work holds all others up, so on a busy machine fewer threads are faster. What is
// seen of each step decides: one thread fewer at once when others waited too long for a late one,
// one more as a trial when some time has passed, longer each time a trial fails.
//
// Not for: which threads there are, how they wait and who does what (crew.h). Times are nanoseconds
// of any steady clock.
#pragma once
#include <cstdint>

namespace chaski {

class ThreadCount {
 public:
  // At most `most` threads; with `fixed` always exactly so many.
  explicit ThreadCount(int most, bool fixed = false);

  int now() const { return allowed_ < worth_ ? allowed_ : worth_; }
  int most() const { return most_; }

  // A pass begins on which no more than `worth` threads can pay.
  void begin(int worth);
  // A step that now() threads shared was over `at`, after `took`. `work` is what one thread would
  // have needed at the pace of the fastest, `chunk` what one chunk of it takes. True if now() has
  // changed.
  bool step(int64_t at, int64_t took, int64_t work, int64_t chunk);
  // The same of a step that one thread did by itself.
  bool step_alone(int64_t at, int64_t took);

  // Threads that worked, on the average over time; 0 before the first step.
  double average() const;

 private:
  bool too_many(int64_t took, int64_t work, int64_t chunk) const;
  void allow(int threads, int64_t at);
  bool try_one_more(int64_t at);

  int most_;
  bool fixed_;
  int worth_;                             // of this pass
  int allowed_;                           // by what was seen of others at work on this machine
  int64_t window_ = 0, window_work_ = 0;  // of the last steps with this number of threads
  int64_t changed_ = 0;                   // when allowed_ last changed
  bool raised_ = false;                   // and which way
  int64_t patience_;                      // until the next trial
  double used_ = 0, time_ = 0;
};

}  // namespace chaski
