#include "ggml-like-tensor/file/chunks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

namespace chaski {

std::vector<Chunk> chunks_of(const ModelSource& source) {
  // long enough for one write, small compared with any large tensor
  constexpr uint64_t kChunkBytes = 1 << 20;
  std::vector<Chunk> chunks;
  for (size_t t = 0; t < source.tensors.size(); t++) {
    const TensorInfo& info = source.tensors[t].info;
    const int64_t strips = info.tiled() ? (info.rows + kStrip - 1) / kStrip : 1;
    const uint64_t strip = info.bytes() / strips;
    const int64_t step = std::max<int64_t>(1, kChunkBytes / std::max<uint64_t>(1, strip));
    for (int64_t first = 0; first < strips; first += step) {
      const int64_t last = std::min(strips, first + step);
      chunks.push_back({t, first, last, first * strip, (last - first) * strip});
    }
  }
  return chunks;
}

void for_each_job(size_t jobs, int threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> stop = false;
  std::mutex guard;
  std::exception_ptr error;
  size_t failed = jobs;
  // Jobs are taken in order and every taken job is finished. So if several jobs fail, the lowest of
  // them has been run, and the reported error does not depend on the number of threads.
  const auto worker = [&] {
    for (size_t job; !stop && (job = next++) < jobs;) {
      try {
        work(job);
      } catch (...) {
        const std::lock_guard lock(guard);
        stop = true;
        if (job < failed) failed = job, error = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> crew;
    try {
      while (crew.size() + 1 < std::min<size_t>(std::max(threads, 1), jobs))
        crew.emplace_back(worker);
    } catch (const std::system_error&) {
      // If the system starts no more threads, those that exist do all the jobs.
    }
    worker();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace chaski
