#include "engine/machine/bandwidth.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <string_view>

#include "engine/machine/cache_folder.h"
#include "engine/machine/fastest_pass.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

namespace {

// Every 64-bit target has registers of 16 bytes. Vectors of 64 bytes were tried: they spill without
// AVX-512.
typedef uint64_t Word __attribute__((vector_size(16)));
constexpr size_t kChunk = (1 << 20) / sizeof(Word);
constexpr uint64_t kBriefBytes = 16 << 20;

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

// At most a quarter of the free memory. If that is less than the caches, the figure is theirs.
uint64_t affordable(uint64_t bytes) {
  const uint64_t free = available_memory().value_or(bytes);
  while (bytes > free / 4 && bytes > kChunk * sizeof(Word)) bytes /= 2;
  return bytes;
}

}  // namespace

bool measures_briefly() {
  const char* how = std::getenv("CHASKI_MEASURE");
  return how && std::string_view(how) == "brief";
}

// Memory in huge pages if the system grants them, so that TLB misses do not affect the figure.
struct BandwidthMeter::Buffer {
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

double measure_read_bandwidth(const BandwidthOptions& options) {
  return BandwidthMeter(options).measure();
}

BandwidthMeter::BandwidthMeter(const BandwidthOptions& options)
    : options_(options),
      buffer_(
          std::make_unique<Buffer>(affordable(measures_briefly() ? kBriefBytes : options.bytes))) {
  options_.threads = std::max(1, options.threads);
  if (buffer_->data())
    each_chunk(0, [](Word* chunk) { std::fill(chunk, chunk + kChunk, Word{1}); });
}

BandwidthMeter::~BandwidthMeter() = default;

double BandwidthMeter::measure() {
  if (!buffer_->data()) return 0;
  std::atomic<uint64_t> sink = 0;  // the sums are used, so they are computed
  const double seconds = each_chunk(measures_briefly() ? 0 : options_.seconds,
                                    [&](Word* chunk) { sink += sum(chunk, chunk + kChunk); });
  return double(buffer_->words() / kChunk * kChunk * sizeof(Word)) / seconds;
}

// Passes of work over all chunks. Each free thread takes the next chunk, as in the kernels, so that
// a delayed thread does not look like slow memory.
template <class Work>
double BandwidthMeter::each_chunk(double seconds, const Work& work) const {
  const size_t chunks = buffer_->words() / kChunk;
  std::atomic<size_t> next = 0;
  return fastest_pass(
      options_.threads, seconds, [&] { next = 0; },
      [&] {
        for (size_t i; (i = next++) < chunks;) work(buffer_->data() + i * kChunk);
      });
}

std::string speed_place(const std::string& of) {
  utsname machine = {};
  ::uname(&machine);
  const std::string whole = of + " of " + machine.nodename;
  return fmt::format("speed/{:016x}", XXH3_64bits(whole.data(), whole.size()));
}

std::string cpu_with(int threads) { return fmt::format("cpu, -t {}", threads); }

double kept_bandwidth(const std::string& of) {
  const std::string text = kept_text(speed_place(of));
  double rate = 0;
  std::from_chars(text.data(), text.data() + text.size(), rate);
  return std::isfinite(rate) && rate > 0 ? rate : 0;
}

void keep_bandwidth(const std::string& of, double bytes_per_second) {
  if (bytes_per_second > 0)
    keep_text(speed_place(of),
              fmt::format("{:.0f} bytes per second of {}\n", bytes_per_second, of));
}

}  // namespace chaski
