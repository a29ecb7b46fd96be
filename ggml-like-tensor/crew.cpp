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

// Covers the gaps within a decode step and the draw after it. After this time a thread sleeps.
constexpr int64_t kSpin = 60'000;

}  // namespace

Crew::Crew(int threads, bool fixed)
    : size_(threads), limit_(threads), parts_(std::make_unique<Part[]>(size_t(threads))) {
  threads_.reserve(size_t(size()));
  try {
    for (int i = 1; i < size(); ++i) threads_.emplace_back([this, i] { worker(i); });
  } catch (const std::system_error& error) {
    const int started = int(threads_.size()) + 1;
    if (!fixed) {  // then the number that the system allows is the maximum
      size_ = started;
      return;
    }
    stop();
    fail(Exit::memory, "{} threads were requested, but the system starts only {}: {}", threads,
         started, error.what());
  } catch (...) {
    stop();
    throw;
  }
}

Crew::~Crew() { stop(); }

std::shared_ptr<Crew> Crew::shared(int threads, bool fixed) {
  static std::mutex mutex;
  static std::weak_ptr<Crew> largest;
  const std::scoped_lock lock(mutex);
  if (auto crew = largest.lock(); crew && crew->size() >= threads) return crew;
  auto crew = std::make_shared<Crew>(threads, fixed);
  largest = crew;
  return crew;
}

void Crew::stop() {
  stop_ = true;
  limit_ = size() + 1;
  limit_.notify_all();
  wake();
  for (std::thread& t : threads_) t.join();
  threads_.clear();
}

// Waits for ready(): spins for kSpin nanoseconds, then sleeps until wake().
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

// Called after the value that sleepers wait for was stored. Both sides are sequentially consistent:
// either the sleeper sees the value, or the sleeper is seen here.
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

void Crew::run(Steps& work, int steps, ThreadCount& count) {
  if (steps == 0) return;
  const std::scoped_lock lock(running_);
  count_ = &count;
  set_limit();
  work_ = &work, steps_ = steps, step_ = -1;
  over_.store(false, std::memory_order_relaxed);
  next_step(nanoseconds(), 0);
  while (!over_) {
    wait([&] { return untaken_.load() > 0 || over_; });
    take_part(0);
  }
}

// Takes a chunk, if any is left.
bool Crew::take() {
  return untaken_.load(std::memory_order_relaxed) > 0 &&
         untaken_.fetch_sub(1, std::memory_order_acq_rel) > 0;
}

// Which one. As many threads pick as there are chunks, so it finds one. take() orders these
// accesses after those of earlier steps.
int64_t Crew::pick(int id) {
  for (int i = id;; ++i) {
    Part& part = parts_[size_t(i % n_parts_)];
    if (part.next.load(std::memory_order_relaxed) >= part.end) continue;
    const int64_t chunk = part.next.fetch_add(1, std::memory_order_relaxed);
    if (chunk < part.end) return chunk;
  }
}

// Computes chunks of the current step until none is left.
void Crew::take_part(int id) {
  int64_t mine = 0, since = 0;
  for (; take(); ++mine) {
    if (mine == 0) since = nanoseconds();
    work_->run(step_, pick(id), id);
  }
  if (mine == 0) return;
  report(mine, nanoseconds() - since, id);
}

// The last thread to report ends the step.
void Crew::report(int64_t chunks, int64_t took, int id) {
  const int64_t each = took / chunks;
  for (int64_t fastest = fastest_.load(std::memory_order_relaxed);
       each < fastest && !fastest_.compare_exchange_weak(fastest, each);) {
  }
  if (left_.fetch_sub(chunks, std::memory_order_acq_rel) > chunks) return;
  const int64_t at = nanoseconds(), chunk = fastest_.load(std::memory_order_relaxed);
  work_->over(step_, at - started_);
  if (!work_->reads_file(step_) && count_->step(at, at - started_, chunk * chunks_, chunk))
    set_limit();
  next_step(at, id);
}

void Crew::set_limit() {
  const int limit = count_->now();
  if (limit_.exchange(limit) < limit) limit_.notify_all();
}

// Gives each thread a part of the step's chunks. Experts that are read from a file stay in the
// order in which they arrive.
void Crew::divide() {
  n_parts_ = work_->reads_file(step_) ? 1 : int(std::min<int64_t>(count_->now(), chunks_));
  for (int i = 0; i < n_parts_; ++i) {
    parts_[size_t(i)].next.store(chunks_ * i / n_parts_, std::memory_order_relaxed);
    parts_[size_t(i)].end = chunks_ * (i + 1) / n_parts_;
  }
}

// Opens the next step that has chunks, or ends the pass. A step that only one thread can do is done
// here, without waking the others.
void Crew::next_step(int64_t at, int id) {
  while (++step_ < steps_) {
    started_ = at;
    chunks_ = work_->chunks(step_);
    if (chunks_ == 0) {
      work_->over(step_, 0);
      continue;
    }
    if (chunks_ > 1 && (id > 0 || count_->now() > 1)) {
      divide();
      left_.store(chunks_, std::memory_order_relaxed);
      fastest_.store(std::numeric_limits<int64_t>::max(), std::memory_order_relaxed);
      untaken_.store(chunks_);
      return wake();
    }
    for (int64_t chunk = 0; chunk < chunks_; ++chunk) work_->run(step_, chunk, id);
    at = nanoseconds();
    work_->over(step_, at - started_);
    if (count_->step_alone(at, at - started_)) set_limit();
  }
  over_.store(true);
  wake();
}

}  // namespace chaski
