// A crew of threads that computes the steps of a pass together. A step is cut into chunks that are
// taken one by one. It is over when its chunks are done, even if some threads never took part. If
// the system suspends a thread between two chunks, no other thread waits for it; it joins the
// current step when it wakes. Only a chunk that was taken is waited for; ThreadCount limits the
// cost of that.
//
// A counter holds the number of chunks of the current step that are not taken. A thread that
// subtracts one and finds that it was positive has a chunk of that step, even if it last looked at
// an earlier step. A thread reads the state of a pass only while it has a chunk, and no step ends
// before its chunks are done. So a late thread cannot disturb a later step or pass.
//
// A thread that has a chunk decides which one: the next of its own part of the step, or of another
// part once its own is taken. So it mostly reads weights straight ahead. Chunks in turn would make
// the prefetch at the end of each request what another thread reads.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ggml-like-tensor/thread_count.h"

namespace chaski {

// The work of a crew.
class Steps {
 public:
  // The number of chunks of a step, 0 or more. Called when all steps before it are over.
  virtual int64_t chunks(int step) = 0;
  // Computes a chunk on thread 0 .. size() - 1. Must not throw.
  virtual void run(int step, int64_t chunk, int thread) = 0;
  virtual void over(int step, int64_t nanoseconds) = 0;
  // Whether threads may wait for a file in this step. Then its time does not show how many threads
  // are worth it.
  virtual bool reads_file(int) const { return false; }

 protected:
  ~Steps() = default;
};

class Crew {
 public:
  // Starts up to `threads` threads, or as many as the system allows. With `fixed` it starts exactly
  // `threads`, or throws Error(memory).
  explicit Crew(int threads, bool fixed = false);
  // The crew that all engines of the process share. It has at least `threads` threads, or as many
  // as the system allows. A larger crew replaces it when one is asked for; the users of the older
  // one keep that.
  static std::shared_ptr<Crew> shared(int threads, bool fixed = false);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int size() const { return size_; }

  // The caller is thread 0, and `count` decides how many threads work. A thread that wakes late may
  // still take a chunk although its number is above `count`. Returns when all steps are over. Calls
  // from several threads run one after the other.
  void run(Steps& work, int steps, ThreadCount& count);

 private:
  void worker(int id);
  void stop();
  bool take();
  int64_t pick(int id);
  void take_part(int id);
  void report(int64_t chunks, int64_t took, int id);
  void divide();
  void next_step(int64_t at, int id);
  void set_limit();
  template <class Ready>
  void wait(Ready ready);
  void wake();

  // Written by the thread that ends a step, read by threads that have a chunk of the next one.
  Steps* work_ = nullptr;
  ThreadCount* count_ = nullptr;
  int step_ = 0, steps_ = 0;
  int64_t chunks_ = 0, started_ = 0;
  int size_;
  std::mutex running_;

  alignas(64) std::atomic<int64_t> untaken_{0};  // 0 or less: no chunk is left
  alignas(64) std::atomic<int64_t> left_{0};     // chunks that are not done
  std::atomic<int64_t> fastest_{0};     // nanoseconds for a chunk, of the fastest thread so far
  alignas(64) std::atomic<int> limit_;  // threads with this number or a higher one do not take part
  std::atomic<bool> over_{true}, stop_{false};
  std::atomic<int> sleepers_{0};
  std::atomic<uint32_t> bell_{0};
  std::vector<std::thread> threads_;
  // The chunks of a thread. `next` passes `end` once they are all taken.
  struct alignas(64) Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::unique_ptr<Part[]> parts_;  // one for each thread, n_parts_ of them in use
  int n_parts_ = 1;
};

}  // namespace chaski
