// Runs plans. There is one arena for all of them (one pass at a time) and a scratch area for each
// thread. Work is distributed in chunks; which thread computes a chunk does not change a bit of the
// result. A run allocates nothing.
#pragma once
#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>

#include "ggml-like-tensor/crew.h"
#include "ggml-like-tensor/plan.h"

namespace chaski {

// 64-byte aligned memory; the contents are zero after it grows.
class AlignedBytes {
 public:
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool grow(size_t bytes);  // true if the memory moved; throws Error(memory)

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Completes the values of which each rank has computed a part.
class Exchange {
 public:
  // Those after a step. Returns false if rank 0 abandons the pass.
  virtual bool complete(const Step& step) = 0;

 protected:
  ~Exchange() = default;
};

class ExpertCache;
class WeightStream;

class Executor : private Steps {
 public:
  // Up to `threads` threads of the crew, as many as pay off; with `fixed` always exactly `threads`.
  Executor(std::shared_ptr<Crew> crew, int threads, bool fixed = false)
      : crew_(std::move(crew)),
        count_(std::min(threads, crew_->size()), fixed),
        scratch_(size_t(crew_->size())) {}
  explicit Executor(int threads, bool fixed = false)
      : Executor(Crew::shared(threads, fixed), threads, fixed) {}

  int threads() const { return count_.most(); }
  double threads_used() const { return count_.average(); }
  // Gives a plan the memory that it runs in, so that its input can be written. run() does the same.
  void make_room(Plan& plan);
  // Returns false if `stop` was set and the pass was abandoned. It is checked before each step and
  // each chunk. The results of an abandoned pass are invalid.
  bool run(Plan& plan, const std::atomic<bool>* stop = nullptr);

  // If set, receives the seconds of each step of the last run; with an exchange, last those of
  // all gathers, with the time that this rank waited for others.
  std::vector<double>* profile = nullptr;
  // The experts of the plans, and the weights that they stream, of a model that is larger than
  // memory. Plans are bound again after a change of `stream`.
  ExpertCache* experts = nullptr;
  WeightStream* stream = nullptr;
  // For plans that have gathers. What it throws, run() throws.
  Exchange* exchange = nullptr;
  // Called after each complete step, before the next one begins, while the step's inputs are still
  // there. One thread at a time calls it, in order. Must not throw.
  std::function<void(const Plan&, size_t step)> after_step;

 private:
  int64_t chunks(int step) override;
  void run(int step, int64_t chunk, int thread) override;
  void over(int step, int64_t nanoseconds) override;
  bool reads_file(int step) const override;
  bool stops();
  int load_of(int step) const;
  void complete(const Step& step);

  std::shared_ptr<Crew> crew_;
  ThreadCount count_;
  Plan* plan_ = nullptr;
  int load_ = -1;      // the load of the stream that the step holds
  bool waits_ = true;  // whether an expert of the last router's choice was not in memory
  const std::atomic<bool>* stop_ = nullptr;
  std::atomic<bool> abandoned_{false};
  std::exception_ptr error_;  // of the exchange
  AlignedBytes arena_;
  std::vector<AlignedBytes> scratch_;
  AlignedBytes shared_;  // kSharedCounters counters, then what kernels share
};

}  // namespace chaski
