#include "main/serve/workers.h"

#include <utility>

namespace chaski {

Workers::~Workers() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool Workers::add(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  const int idle = int(threads_.size()) - running_, queued = int(jobs_.size());
  const int free = idle + most_threads_ - int(threads_.size());
  if (queued >= free + most_waiting_) return false;
  jobs_.push_back(std::move(job));
  if (queued >= idle && int(threads_.size()) < most_threads_)
    threads_.emplace_back([this] { work(); });
  changed_.notify_one();
  return true;
}

int Workers::running() const {
  const std::scoped_lock lock(mutex_);
  return running_;
}

int Workers::waiting() const {
  const std::scoped_lock lock(mutex_);
  return int(jobs_.size());
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    ++running_;
    lock.unlock();
    job();
    lock.lock();
    --running_;
  }
}

}  // namespace chaski
