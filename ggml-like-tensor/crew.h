// A crew of threads that walks through the steps of a pass together. A step is cut into chunks that
// are handed out one by one; it is over when its chunks are done, not when all threads have come:
// a thread that the system lets sleep between two chunks is not missed, and finds whatever step is
// on when it wakes. A chunk in hand is waited for, which is what ThreadCount sees to.
//
// A counter says how many chunks of the step that is on nobody has taken. Who subtracts one and
// finds that it was positive has a chunk of that step, whatever was on when that thread last
// looked. Nothing else of a pass is read without a chunk in hand, and no step ends before its
// chunks are done: so a late thread can harm neither a later step nor a later pass.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "ggml-like-tensor/thread_count.h"

namespace chaski {

// What a crew works on.
class Steps {
 public:
  // Chunks of a step, 0 or more. Called when all steps before it are over.
  virtual int64_t chunks(int step) = 0;
  // By thread 0 .. size() - 1; must not throw.
  virtual void run(int step, int64_t chunk, int thread) = 0;
  virtual void over(int step, int64_t nanoseconds) = 0;

 protected:
  ~Steps() = default;
};

class Crew {
 public:
  // `threads` at most, or as many as the system starts; with `fixed` always so many, or
  // Error(memory).
  explicit Crew(int threads, bool fixed = false);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return count_.most(); }
  double average() const { return count_.average(); }  // threads that worked

  // The caller is thread 0. More than `worth` threads are not used. Returns when all steps are
  // over.
  void run(Steps& work, int steps, int worth);

 private:
  void worker(int id);
  void stop();
  int64_t take();
  void take_part(int id);
  void report(int64_t chunks, int64_t took, int id);
  void next_step(int64_t at, int id);
  void set_limit();
  template <class Ready>
  void wait(Ready ready);
  void wake();

  // Written by whoever ends a step, read by whoever has a chunk of the next.
  Steps* work_ = nullptr;
  int step_ = 0, steps_ = 0;
  int64_t chunks_ = 0, started_ = 0;
  ThreadCount count_;

  alignas(64) std::atomic<int64_t> untaken_{0};  // 0 or less: there is nothing to take
  alignas(64) std::atomic<int64_t> left_{0};     // chunks not done
  std::atomic<int64_t> fastest_{0};     // nanoseconds a chunk, of the fastest thread so far
  alignas(64) std::atomic<int> limit_;  // threads from here on do not take part
  std::atomic<bool> over_{true}, stop_{false};
  std::atomic<int> sleepers_{0};
  std::atomic<uint32_t> bell_{0};
  std::vector<std::thread> threads_;
};

}  // namespace chaski
