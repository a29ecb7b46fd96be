// Lets several engines of a process make their passes one after the other, first come first served.
// The engines share one crew of threads and the memory's bandwidth, so two passes at once would
// take as long as one after the other, and neither could be timed. Thread-safe.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace chaski {

class Turns {
 public:
  // Takes a ticket, and waits until the turns of all earlier tickets are over.
  void begin() {
    std::unique_lock lock(mutex_);
    const uint64_t ticket = next_ticket_++;
    changed_.wait(lock, [&] { return serving_ == ticket; });
  }
  void end() {
    {
      const std::scoped_lock lock(mutex_);
      ++serving_;
    }
    changed_.notify_all();
  }
  // Of one engine: whether it has requests.
  void add_busy(int n) { busy_ += n; }
  bool is_shared() const { return busy_ > 1; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ticket_ = 0, serving_ = 0;
  std::atomic<int> busy_ = 0;  // engines
};

// A turn, from its construction to its end. Without `turns` it does nothing.
class Turn {
 public:
  explicit Turn(Turns* turns) : turns_(turns) {
    if (turns_) turns_->begin();
  }
  ~Turn() {
    if (turns_) turns_->end();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  Turns* const turns_;
};

}  // namespace chaski
