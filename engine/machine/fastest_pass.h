// Times work for bandwidth.h and peak.h. Several threads repeat a pass of work, and the fastest
// pass counts, because other programs can only make a pass slower.
#pragma once
#include <barrier>
#include <chrono>
#include <system_error>
#include <thread>
#include <vector>

namespace chaski {

// Returns the seconds of the fastest pass. In a pass every thread calls work() once. One thread
// calls reset() before each pass. Passes begin until `seconds` are over; there is at least one.
template <class Reset, class Work>
double fastest_pass(int threads, double seconds, const Reset& reset, const Work& work) {
  using Clock = std::chrono::steady_clock;
  bool over = false;
  double best = 0;
  Clock::time_point began, started;
  // Runs in one thread when all have arrived: before the first pass, and after each.
  std::barrier pass(threads, [&]() noexcept {
    const auto now = Clock::now();
    const double took = std::chrono::duration<double>(now - started).count();
    if (began == Clock::time_point{})
      began = now;
    else
      best = best > 0 && best < took ? best : took;
    over = best > 0 && std::chrono::duration<double>(now - began).count() >= seconds;
    started = now;
    reset();
  });
  const auto worker = [&] {
    for (pass.arrive_and_wait(); !over; pass.arrive_and_wait()) work();
  };
  std::vector<std::jthread> crew;
  crew.reserve(size_t(threads));
  try {
    while (int(crew.size()) + 1 < threads) crew.emplace_back(worker);
  } catch (const std::system_error&) {
    // The system gives no more threads: the barrier must not wait for the missing ones.
    for (int missing = threads - 1 - int(crew.size()); missing > 0; --missing)
      pass.arrive_and_drop();
  }
  worker();
  return best;
}

}  // namespace chaski
