// A model's tensors cut into pieces of about 1 MB, and a few threads that work through such a list.
// Reading, writing and quantizing a whole model share this. Kernels have their own threads
// (crew.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

// Strips [first, last) of a tensor (0, 1 for a vector). They are `bytes` bytes, `offset` bytes from
// the tensor's start.
struct Chunk {
  size_t tensor;
  int64_t first, last;
  uint64_t offset, bytes;
};

// In order of tensors, then of strips. The cut depends on the shapes alone, never on the number of
// threads.
std::vector<Chunk> chunks_of(const ModelSource& source);

// Calls work(0) .. work(jobs - 1), each once, in no particular order, from `threads` threads
// including the caller's. If several jobs throw, the exception of the lowest job reaches the
// caller, after all threads have stopped.
void for_each_job(size_t jobs, int threads, const std::function<void(size_t)>& work);

// Alignment of tensors in files and in memory: a cache line, and an AVX-512 register.
constexpr uint64_t kTensorAlign = 64;
constexpr uint64_t aligned(uint64_t offset) {
  return (offset + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
}

}  // namespace chaski
