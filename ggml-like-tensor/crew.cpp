#include "ggml-like-tensor/crew.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <system_error>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/pause.h"

namespace chaski {

namespace {

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Covers the gaps of a decode step and the draw after it; then a thread sleeps.
constexpr int64_t kSpin = 60'000;

}  // namespace

Crew::Crew(int threads, bool fixed) : count_(threads, fixed), limit_(count_.now()) {
  threads_.reserve(size_t(size()));
  try {
    for (int i = 1; i < size(); ++i) threads_.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& error) {
    const int started = int(threads_.size()) + 1;
    if (!fixed) {  // then it is what the system grants that is the most
      count_ = ThreadCount(started);
      return;
    }
    stop();
    fail(Exit::memory, "{} threads are wanted, the system starts no more than {}: {}", threads,
         started, error.what());
  } catch (...) {
    stop();
    throw;
  }
}

Crew::~Crew() { stop(); }

void Crew::stop() {
  stop_ = true;
  limit_ = size() + 1;
  limit_.notify_all();
  wake();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

// Until ready(): spinning for a moment, then asleep until wake().
template <class Ready>
void Crew::wait(Ready ready) {
  for (int64_t end = nanoseconds() + kSpin; nanoseconds() < end;)
    for (int i = 0; i < 16; ++i) {
      if (ready()) return;
      pause();
    }
  sleepers_.fetch_add(1);
  for (uint32_t seen = bell_.load(); !ready(); seen = bell_.load()) bell_.wait(seen);
  sleepers_.fetch_sub(1);
}

// After what the sleepers wait for was stored; both sides are sequentially consistent, so that
// either the sleeper sees it or it is seen here.
void Crew::wake() {
  if (sleepers_.load() == 0) return;
  bell_.fetch_add(1);
  bell_.notify_all();
}

void Crew::worker(int id) {
  for (;;) {
    for (int limit = limit_.load(); limit <= id; limit = limit_.load()) limit_.wait(limit);
    wait([&] { return untaken_.load() > 0 || limit_ <= id || stop_; });
    if (stop_) return;
    if (limit_ > id) take_part(id);
  }
}

void Crew::run(Steps& work, int steps, int worth) {
  if (steps == 0) return;
  count_.begin(worth);
  set_limit();
  work_ = &work, steps_ = steps, step_ = -1;
  over_.store(false, std::memory_order_relaxed);
  next_step(nanoseconds(), 0);
  while (!over_) {
    wait([&] { return untaken_.load() > 0 || over_; });
    take_part(0);
  }
}

// How many chunks were there to take, this one included: 0 or less if there was none.
int64_t Crew::take() {
  if (untaken_.load(std::memory_order_relaxed) <= 0) return 0;
  return untaken_.fetch_sub(1, std::memory_order_acq_rel);
}

// Chunks of the step that is on, as long as there are any.
void Crew::take_part(int id) {
  int64_t mine = 0, since = 0;
  for (int64_t there; (there = take()) > 0; ++mine) {
    if (mine == 0) since = nanoseconds();
    work_->run(step_, chunks_ - there, id);
  }
  if (mine == 0) return;
  report(mine, nanoseconds() - since, id);
}

// The last to report ends the step.
void Crew::report(int64_t chunks, int64_t took, int id) {
  const int64_t each = took / chunks;
  for (int64_t fastest = fastest_.load(std::memory_order_relaxed);
       each < fastest && !fastest_.compare_exchange_weak(fastest, each);) {
  }
  if (left_.fetch_sub(chunks, std::memory_order_acq_rel) > chunks) return;
  const int64_t at = nanoseconds(), chunk = fastest_.load(std::memory_order_relaxed);
  work_->over(step_, at - started_);
  if (count_.step(at, at - started_, chunk * chunks_, chunk)) set_limit();
  next_step(at, id);
}

void Crew::set_limit() {
  const int limit = count_.now();
  if (limit_.exchange(limit) < limit) limit_.notify_all();
}

// Opens the next step that has chunks, or ends the pass. What only one thread can do is done here,
// without a word to the others.
void Crew::next_step(int64_t at, int id) {
  while (++step_ < steps_) {
    started_ = at;
    chunks_ = work_->chunks(step_);
    if (chunks_ == 0) {
      work_->over(step_, 0);
      continue;
    }
    if (chunks_ > 1 && (id > 0 || count_.now() > 1)) {
      left_.store(chunks_, std::memory_order_relaxed);
      fastest_.store(std::numeric_limits<int64_t>::max(), std::memory_order_relaxed);
      untaken_.store(chunks_);
      return wake();
    }
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) work_->run(step_, chunk, id);
    at = nanoseconds();
    work_->over(step_, at - started_);
    if (count_.step_alone(at, at - started_)) set_limit();
  }
  over_.store(true);
  wake();
}

}  // namespace chaski
