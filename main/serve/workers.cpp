#include "main/serve/workers.h"

#include <chrono>
#include <system_error>
#include <utility>

namespace chaski {

namespace {

constexpr double kNewest = 0.2;  // the weight of the newest job in the mean

}  // namespace

Workers::~Workers() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::add(Job job) {
  const std::scoped_lock lock(mutex_);
  if (int(jobs_.size()) + running_ >= most_threads_ + most_waiting_) return false;
  jobs_.push_back(std::move(job));
  try {
    start_thread();
  } catch (const std::system_error&) {
    if (threads_.empty()) {
      jobs_.pop_back();
      throw;
    }  // else the job waits for another thread
  }
  changed_.notify_one();
  return true;
}

// Starts a thread if there are more jobs than idle threads, and a job may begin.
void Workers::start_thread() {
  const int idle = int(threads_.size()) - running_;
  if (int(jobs_.size()) > idle && free() > idle) threads_.emplace_back([this] { work(); });
}

void Workers::pause() {
  const std::scoped_lock lock(mutex_);
  ++paused_;
  try {
    start_thread();
  } catch (const std::exception&) {  // jobs wait for other threads
  }
  changed_.notify_all();
}

void Workers::resume() {
  std::unique_lock lock(mutex_);
  ++resuming_;
  changed_.wait(lock, [&] { return over_ || free() + resuming_ > 0; });
  --resuming_, --paused_;
}

void Workers::drop_over() {
  const std::scoped_lock lock(mutex_);
  std::erase_if(jobs_, [](const Job& job) { return job.is_over(); });
}

int Workers::running() const {
  const std::scoped_lock lock(mutex_);
  return running_;
}

int Workers::waiting() const {
  const std::scoped_lock lock(mutex_);
  return int(jobs_.size());
}

double Workers::wait_seconds() const {
  const std::scoped_lock lock(mutex_);
  return mean_seconds_ * double(jobs_.size() + 1) / most_threads_;
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || (!jobs_.empty() && free() > 0); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    ++running_;
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    job.run();
    job = {};
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    lock.lock();
    --running_;
    mean_seconds_ += (took.count() - mean_seconds_) * (mean_seconds_ > 0 ? kNewest : 1);
    if (paused_ > 0) changed_.notify_all();
  }
}

}  // namespace chaski
