// Measures how fast a file is read in pieces from all over it, as ExpertCache and WeightStream read
// it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "engine/machine/bandwidth.h"
#include "ggml-like-tensor/direct_read.h"

namespace chaski {

double measure_file_bandwidth(const Mapping& file) {
  const double seconds = measures_briefly() ? 0.02 : 0.25;
  const int fd = file.open_again();
  const uint64_t pieces = file.bytes().size() / kReadPiece;
  if (fd < 0) return 0;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::atomic<uint64_t> read = 0, next = 0;
  const auto work = [&] {
    const std::unique_ptr<void, decltype(&std::free)> memory(
        std::aligned_alloc(kSector, kReadPiece), std::free);
    while (memory && elapsed() < seconds) {
      // Steps by a prime number, so that no two pieces are neighbours.
      const uint64_t piece = pieces > 0 ? next++ * 7919 % pieces : 0;
      const ssize_t n = ::pread(fd, memory.get(), kReadPiece, off_t(piece * kReadPiece));
      if (n <= 0) break;
      read += uint64_t(n);
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < kReaders; ++i) threads.emplace_back(work);
  threads.clear();
  ::close(fd);
  return double(read) / elapsed();
}

}  // namespace chaski
