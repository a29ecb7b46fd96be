#include "ggml-like-tensor/thread_count.h"

#include <algorithm>

namespace chaski {

namespace {

constexpr int64_t kMicro = 1000, kMilli = 1000 * kMicro;
// After this time earlier measurements count half.
constexpr int64_t kWindow = 20 * kMilli;
// A shorter wait does not show that a thread was suspended: it may be an interrupt, a page fault or
// unequal chunks.
constexpr int64_t kLate = 300 * kMicro;
// If n threads reach less than this share of their ideal speed, they are too many.
constexpr double kWorthwhile = 0.6;
// The first trial after a late thread comes soon, because most late threads are chance. If every
// trial fails, one in 250 ms costs a hundredth of the time: a scheduler's time slice is 3 ms.
constexpr int64_t kLeastPatience = 2 * kMilli, kMostPatience = 250 * kMilli;
// A number of threads that had no late thread for this time is trusted again.
constexpr int64_t kTrusted = 60 * kMilli;

}  // namespace

ThreadCount::ThreadCount(int most, bool fixed)
    : most_(std::max(most, 1)),
      fixed_(fixed),
      worth_(most_),
      allowed_(most_),
      patience_(kLeastPatience) {}

void ThreadCount::begin(int worth) {
  if (!fixed_) worth_ = std::clamp(worth, 1, most_);
}

// True if a thread was waited for longer than unequal chunks explain, and such waits cost more than
// the thread is worth.
bool ThreadCount::too_many(int64_t took, int64_t work, int64_t chunk) const {
  return took - work / now() > std::max(kLate, 2 * chunk) &&
         double(window_work_) < kWorthwhile * now() * double(window_);
}

void ThreadCount::allow(int threads, int64_t at) {
  raised_ = threads > allowed_;
  allowed_ = threads, changed_ = at, window_ = window_work_ = 0;
}

bool ThreadCount::step(int64_t at, int64_t took, int64_t work, int64_t chunk) {
  used_ += double(now()) * double(took), time_ += double(took);
  if (fixed_) return false;
  window_ += took, window_work_ += std::min(work, now() * took);
  if (now() > 1 && too_many(took, work, chunk)) {
    if (raised_) patience_ = std::min(2 * patience_, kMostPatience);  // the trial failed
    allow(now() - 1, at);
    return true;
  }
  if (window_ > kWindow) window_ /= 2, window_work_ /= 2;
  return try_one_more(at);
}

bool ThreadCount::step_alone(int64_t at, int64_t took) {
  used_ += double(took), time_ += double(took);
  return !fixed_ && try_one_more(at);
}

// Adds a thread as a trial if enough time has passed and fewer threads work than the pass can use.
// Threads that arrived late at a step had reduced the number before.
bool ThreadCount::try_one_more(int64_t at) {
  const int64_t since = at - changed_;
  if (allowed_ >= worth_) {
    if (since >= kTrusted) patience_ = kLeastPatience;
    return false;
  }
  if (since < patience_) return false;
  if (raised_) patience_ = std::max(patience_ / 4, kLeastPatience);
  allow(allowed_ + 1, at);
  return true;
}

double ThreadCount::average() const { return time_ > 0 ? used_ / time_ : 0; }

}  // namespace chaski
