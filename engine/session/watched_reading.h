// Watches the weights of a model being read into memory while Engine::open() runs.
#pragma once
#include <cstdint>
#include <functional>
#include <utility>

namespace chaski {

class WatchedReading {
 public:
  using OnRead = std::function<void(uint64_t done, uint64_t all)>;

  // As long as this object lives, Engine::open() in this thread calls `on_read` with the bytes that
  // are read and those of all weights, from several threads. It may throw, which ends the opening.
  // A mapped .quipu file is not read.
  explicit WatchedReading(OnRead on_read) : before_(std::exchange(current_, &on_read_)) {
    on_read_ = std::move(on_read);
  }
  ~WatchedReading() { current_ = before_; }
  WatchedReading(const WatchedReading&) = delete;
  WatchedReading& operator=(const WatchedReading&) = delete;

  static const OnRead* of_thread() { return current_; }  // null: none

 private:
  static inline thread_local const OnRead* current_ = nullptr;

  const OnRead* const before_;
  OnRead on_read_;
};

}  // namespace chaski
