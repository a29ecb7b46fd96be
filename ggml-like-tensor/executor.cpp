#include "ggml-like-tensor/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace chaski {

constexpr size_t kCounterBytes = kSharedCounters * sizeof(uint32_t);

bool AlignedBytes::grow(size_t bytes) {
  if (bytes <= size_) return false;
  bytes = (bytes + 63) / 64 * 64;
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  if (!p) fail(Exit::memory, "activations need {} bytes of memory that are not there", bytes);
  std::memset(p, 0, bytes);
  data_.reset(p);
  size_ = bytes;
  return true;
}

void Executor::run(Plan& plan) {
  arena_.grow(plan.arena_bytes());
  plan.bind(arena_.data());
  for (AlignedBytes& s : scratch_) s.grow(plan.scratch_bytes());
  shared_.grow(kCounterBytes + plan.shared_bytes());
  if (n_counters_ < plan.steps.size()) {
    n_counters_ = plan.steps.size();
    counters_ = std::make_unique<Counter[]>(n_counters_);
  }
  for (size_t i = 0; i < plan.steps.size(); ++i)
    counters_[i].next.store(0, std::memory_order_relaxed);
  using Clock = std::chrono::steady_clock;
  // by thread: when each barrier was behind it
  std::vector<std::vector<Clock::time_point>> passed(profile ? size_t(threads_.size()) : 0);
  for (auto& times : passed) times.resize(plan.steps.size());
  auto before = Clock::now();

  threads_.run([&](int id) {
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      step(plan.steps[i], counters_[i], id);
      threads_.barrier();
      if (profile) passed[size_t(id)][i] = Clock::now();
    }
  });
  if (!profile) return;
  // A step is over when the first thread goes on: one that fell asleep at the barrier may find the
  // next step done when it wakes.
  profile->assign(plan.steps.size(), 0);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    auto over = passed[0][i];
    for (const auto& times : passed) over = std::min(over, times[i]);
    (*profile)[i] = std::chrono::duration<double>(over - before).count();
    before = over;
  }
}

void Executor::step(const Step& s, Counter& counter, int thread) {
  const Scratch scratch{scratch_[size_t(thread)].data(),
                        reinterpret_cast<uint32_t*>(shared_.data()),
                        shared_.data() + kCounterBytes};
  const int64_t units = s.kernel->units(s.op, s.args), grain = s.kernel->grain(s.op, s.args);
  for (;;) {
    const int64_t first = counter.next.fetch_add(grain, std::memory_order_relaxed);
    if (first >= units) return;
    s.kernel->run(s.op, s.args, first, first + grain < units ? first + grain : units, scratch);
  }
}

}  // namespace chaski
