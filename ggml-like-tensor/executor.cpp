#include "ggml-like-tensor/executor.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "ggml-like-tensor/expert_cache.h"
#include "ggml-like-tensor/weight_stream.h"

namespace chaski {

constexpr size_t kCounterBytes = kSharedCounters * sizeof(uint32_t);

bool AlignedBytes::grow(size_t bytes) {
  if (bytes <= size_) return false;
  bytes = (bytes + 63) / 64 * 64;
  data_.reset(), size_ = 0;  // otherwise both buffers would exist for a moment
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, bytes));
  if (!p) fail(Exit::memory, "activations need {} bytes of memory, which are not available", bytes);
  std::memset(p, 0, bytes);
  data_.reset(p);
  size_ = bytes;
  return true;
}

void Executor::make_room(Plan& plan) {
  arena_.grow(plan.arena_bytes());
  if (plan.bound_to() == arena_.data()) return;
  plan.bind(arena_.data(),
            stream ? [this](const Weight& w) { return stream->place_of(w); } : WeightPlace());
}

bool Executor::run(Plan& plan, const std::atomic<bool>* stop) {
  make_room(plan);
  plan.prepare();
  for (AlignedBytes& s : scratch_) s.grow(plan.scratch_bytes());
  shared_.grow(kCounterBytes + plan.shared_bytes());
  if (profile) profile->assign(plan.steps.size() + (exchange ? 1 : 0), 0);
  plan_ = &plan, stop_ = stop;
  abandoned_.store(false, std::memory_order_relaxed);
  count_.begin(plan.threads_worth(threads()));
  crew_->run(*this, int(plan.steps.size()), count_);
  if (!abandoned_.load(std::memory_order_relaxed)) return true;
  std::memset(shared_.data(), 0, kCounterBytes);  // of the step that was abandoned
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  return false;
}

void Executor::complete(const Step& step) {
  try {
    if (!exchange->complete(step)) abandoned_.store(true, std::memory_order_relaxed);
  } catch (...) {
    error_ = std::current_exception();
    abandoned_.store(true, std::memory_order_relaxed);
  }
}

bool Executor::stops() {
  if (abandoned_.load(std::memory_order_relaxed)) return true;  // even if the flag was reset
  if (!stop_ || !stop_->load(std::memory_order_relaxed)) return false;
  abandoned_.store(true, std::memory_order_relaxed);
  return true;
}

// All streamed weights of a step are one load.
int Executor::load_of(int step) const {
  const Graph& graph = plan_->graph();
  for (const ValueId v : graph.nodes[size_t(step)].in)
    if (const Weight* w = graph.values[size_t(v)].weight)
      if (const int load = stream->load_of(*w); load >= 0) return load;
  return -1;
}

int64_t Executor::chunks(int step) {
  load_ = -1;
  if (stops()) return 0;
  const Step& s = plan_->steps[size_t(step)];
  if (stream && (load_ = load_of(step)) >= 0) stream->acquire(load_);
  return (s.units + s.a_chunk - 1) / s.a_chunk;
}

void Executor::run(int step, int64_t chunk, int thread) {
  if (stops()) return;
  const Step& s = plan_->steps[size_t(step)];
  const Scratch scratch{scratch_[size_t(thread)].data(),
                        reinterpret_cast<uint32_t*>(shared_.data()),
                        shared_.data() + kCounterBytes};
  s.kernel->run(s.op, s.args, chunk * s.a_chunk, std::min((chunk + 1) * s.a_chunk, s.units),
                scratch);
}

bool Executor::reads_file(int step) const {
  return load_ >= 0 || (plan_->steps[size_t(step)].reads_file && waits_);
}

void Executor::over(int step, int64_t nanoseconds) {
  const struct Release {
    const Executor& e;
    ~Release() {
      if (e.load_ >= 0) e.stream->release(e.load_);
    }
  } release{*this};
  if (abandoned_.load(std::memory_order_relaxed)) return;
  if (profile) (*profile)[size_t(step)] = 1e-9 * double(nanoseconds);
  const Step& done = plan_->steps[size_t(step)];
  if (!done.gathers.empty()) {
    using Clock = std::chrono::steady_clock;
    const auto start = profile ? Clock::now() : Clock::time_point();
    complete(done);
    if (profile) profile->back() += std::chrono::duration<double>(Clock::now() - start).count();
  }
  for (const Step::Announced& a : done.announced)
    a.places->expect(a.chosen.ints(0), a.chosen.shape.rows, a.chosen.shape.cols);
  if (!done.announced.empty()) waits_ = !experts || experts->take_missing();
  if (after_step) after_step(*plan_, size_t(step));
}

}  // namespace chaski
