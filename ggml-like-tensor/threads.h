// A pool of threads that run one function together, with a barrier inside it: spinning for a
// moment, because a decode step crosses a hundred of them, then sleeping, because there may be
// fewer cores than threads.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace chaski {

// Cores this process may use: affinity mask and cgroup CPU quota, at least 1.
int usable_cores();

class Threads {
 public:
  explicit Threads(int n);  // throws Error(memory) if the system grants fewer
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  int size() const { return n_; }
  // fn(0) in the caller, fn(1) .. fn(size - 1) in the others; returns when all have. fn must not
  // throw.
  void run(const std::function<void(int)>& fn);
  // For use inside fn: nobody passes before all have come.
  void barrier();

 private:
  void worker(int id);
  void stop();
  const int n_;
  const std::function<void(int)>* fn_ = nullptr;
  alignas(64) std::atomic<uint32_t> generation_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> crossed_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace chaski
