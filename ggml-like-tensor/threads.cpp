#include "ggml-like-tensor/threads.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Until `value` is no longer `old`. Some 50 microseconds of spinning cover the gaps of a decode
// step.
void wait_change(std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < 2000; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

// cgroup v2 "max 100000" or "150000 100000"; 0 if there is no limit to be read.
double quota_cores() {
  std::ifstream in("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(in >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::atof(quota.c_str()) / period;
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  int n = int(std::thread::hardware_concurrency());
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  if (const double quota = quota_cores(); quota > 0) n = std::min(n, int(std::ceil(quota)));
  return std::max(n, 1);
}

Threads::Threads(int n) : n_(std::max(n, 1)) {
  try {
    for (int i = 1; i < n_; ++i) workers_.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& error) {
    const size_t started = workers_.size() + 1;
    stop();
    fail(Exit::memory, "the system starts {} threads, {} were asked for: {}", started, n_,
         error.what());
  }
}

Threads::~Threads() { stop(); }

void Threads::stop() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& t : workers_) t.join();
  workers_.clear();
}

void Threads::worker(int id) {
  for (uint32_t seen = 0;;) {
    wait_change(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_) return;
    (*fn_)(id);
    barrier();
  }
}

void Threads::run(const std::function<void(int)>& fn) {
  if (n_ == 1) return fn(0);
  fn_ = &fn;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  fn(0);
  barrier();
}

void Threads::barrier() {
  if (n_ == 1) return;
  const uint32_t now = crossed_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    crossed_.fetch_add(1, std::memory_order_release);
    crossed_.notify_all();
    return;
  }
  wait_change(crossed_, now);
}

}  // namespace chaski
