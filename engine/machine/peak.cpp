#include "engine/machine/peak.h"

#include "engine/machine/bandwidth.h"
#include "engine/machine/fastest_pass.h"

namespace chaski {

namespace {

constexpr double kPassSeconds = 0.01, kSeconds = 0.1;

// The number of rounds that take one thread at least `pass_seconds`. It is found by doubling,
// because the fastest instruction set is about a hundred times as fast as the slowest.
int64_t rounds_of(int64_t (*peak)(int64_t rounds), double pass_seconds) {
  int64_t rounds = 64;
  while (fastest_pass(
             1, 0, [] {}, [&] { peak(rounds); }) < pass_seconds)
    rounds *= 2;
  return rounds;
}

}  // namespace

double measure_peak(int64_t (*peak)(int64_t rounds), int threads) {
  const double part = measures_briefly() ? 0.01 : 1;
  const int64_t rounds = rounds_of(peak, part * kPassSeconds);
  const auto operations = double(peak(rounds)) * threads;
  return operations / fastest_pass(
                          threads, part * kSeconds, [] {}, [&] { peak(rounds); });
}

}  // namespace chaski
