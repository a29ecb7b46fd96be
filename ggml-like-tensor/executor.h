// Runs plans: one arena for all of them (a pass at a time), a scratch area for each thread, work
// handed out in chunks. Who gets which chunk does not change a bit of the result. A run allocates
// nothing.
#pragma once
#include <memory>

#include "ggml-like-tensor/plan.h"
#include "ggml-like-tensor/threads.h"

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

class Executor {
 public:
  explicit Executor(int threads) : threads_(threads), scratch_(size_t(threads_.size())) {}

  int threads() const { return threads_.size(); }
  void run(Plan& plan);

  // Seconds each step of the last run took, if wanted.
  std::vector<double>* profile = nullptr;

 private:
  struct alignas(64) Counter {
    std::atomic<int64_t> next{0};
  };
  void step(const Step& s, Counter& counter, int thread);

  Threads threads_;
  AlignedBytes arena_;
  std::vector<AlignedBytes> scratch_;
  AlignedBytes shared_;  // kSharedCounters counters, then what kernels share
  std::unique_ptr<Counter[]> counters_;
  size_t n_counters_ = 0;
};

}  // namespace chaski
