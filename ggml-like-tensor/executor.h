// Runs plans: one arena for all of them (a pass at a time), a scratch area for each thread, work
// handed out in chunks. Who gets which chunk does not change a bit of the result. A run allocates
// nothing.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "ggml-like-tensor/crew.h"
#include "ggml-like-tensor/plan.h"

namespace chaski {

// 64-byte aligned, zeroed when it grows.
class AlignedBytes {
 public:
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool grow(size_t bytes);  // true if it moved; throws Error(memory)

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

class Executor : private Steps {
 public:
  // `threads` at most, as many as pay; with `fixed` always so many.
  explicit Executor(int threads, bool fixed = false)
      : crew_(threads, fixed), scratch_(size_t(crew_.size())) {}

  int threads() const { return crew_.size(); }
  double threads_used() const { return crew_.average(); }
  // Gives a plan the memory that it runs in, so that its input can be written; run() does the same.
  void make_room(Plan& plan);
  // False if it was abandoned, because somebody has set `stop`: it is looked at before each step
  // and each chunk, and what was computed until then means nothing.
  bool run(Plan& plan, const std::atomic<bool>* stop = nullptr);

  // Seconds each step of the last run took, if wanted.
  std::vector<double>* profile = nullptr;
  // Told after each step that is whole, before the next begins, while what the step read is still
  // there: by one thread at a time, in order. Must not throw.
  std::function<void(const Plan&, size_t step)> after_step;

 private:
  int64_t chunks(int step) override;
  void run(int step, int64_t chunk, int thread) override;
  void over(int step, int64_t nanoseconds) override;
  bool stops();

  Crew crew_;
  Plan* plan_ = nullptr;
  const std::atomic<bool>* stop_ = nullptr;
  std::atomic<bool> abandoned_{false};
  AlignedBytes arena_;
  std::vector<AlignedBytes> scratch_;
  AlignedBytes shared_;  // kSharedCounters counters, then what kernels share
};

}  // namespace chaski
