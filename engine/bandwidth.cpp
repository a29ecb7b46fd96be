#include "engine/bandwidth.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace chaski {

namespace {

using Clock = std::chrono::steady_clock;
// What every 64-bit target has a register for. Tried: 64-byte vectors, which spill where the target has no AVX-512.
typedef uint64_t Word __attribute__((vector_size(16)));
constexpr size_t kChunk = (1 << 20) / sizeof(Word);

// Pages of our own, in huge ones where the system grants them: misses of the TLB are not what is measured.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return;
    ::madvise(data, bytes, MADV_HUGEPAGE);
    data_ = static_cast<Word*>(data);
  }
  ~Buffer() {
    if (data_) ::munmap(data_, bytes_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Word* data() const { return data_; }
  size_t words() const { return bytes_ / sizeof(Word); }

 private:
  uint64_t bytes_;
  Word* data_ = nullptr;
};

// Eight independent sums, so that no add waits for another one.
uint64_t sum(const Word* from, const Word* to) {
  Word a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{};
  for (; from + 8 <= to; from += 8) {
    a += from[0], b += from[1], c += from[2], d += from[3];
    e += from[4], f += from[5], g += from[6], h += from[7];
  }
  const Word all = a + b + c + d + e + f + g + h;
  return all[0] + all[1];
}

uint64_t affordable(uint64_t bytes) {
  const auto free = uint64_t(::sysconf(_SC_AVPHYS_PAGES)) * uint64_t(::sysconf(_SC_PAGESIZE));
  while (bytes > free / 4 && bytes > (uint64_t{32} << 20)) bytes /= 2;
  return bytes;
}

}  // namespace

double measure_read_bandwidth(const BandwidthOptions& options) {
  const Buffer buffer(affordable(options.bytes));
  if (!buffer.data()) return 0;
  const size_t count = std::max(1, options.threads), chunks = buffer.words() / kChunk;
  std::atomic<uint64_t> sink = 0;  // the sums are used, so they are computed
  std::atomic<size_t> next = 0;
  bool over = false;
  double best = 0;
  Clock::time_point started, end;
  // Runs in one thread when all have arrived, before a pass and after it.
  std::barrier pass(std::ptrdiff_t(count), [&]() noexcept {
    const auto now = Clock::now();
    if (started == Clock::time_point{})
      end = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.seconds));
    else
      best = std::max(best, double(chunks * kChunk * sizeof(Word)) / std::chrono::duration<double>(now - started).count());
    over = best > 0 && now >= end;
    started = now;
    next = 0;
  });
  // Chunks go to whoever is free, as in the kernels: a thread that somebody else delays must not look like slow memory.
  const auto each_chunk = [&](const auto& work) {
    for (size_t i; (i = next++) < chunks;) work(buffer.data() + i * kChunk);
  };
  const auto worker = [&] {
    each_chunk([](Word* chunk) { std::fill(chunk, chunk + kChunk, Word{1}); });
    for (pass.arrive_and_wait(); !over; pass.arrive_and_wait()) each_chunk([&](Word* chunk) { sink += sum(chunk, chunk + kChunk); });
  };
  std::vector<std::jthread> crew;
  for (size_t i = 1; i < count; ++i) crew.emplace_back(worker);
  worker();
  return best;
}

double cached_read_bandwidth(int threads) {
  static std::mutex guard;
  static std::map<int, double> known;
  const std::lock_guard lock(guard);
  const auto [at, is_new] = known.try_emplace(threads, 0);
  if (is_new) at->second = measure_read_bandwidth({.threads = threads});
  return at->second;
}

}  // namespace chaski
