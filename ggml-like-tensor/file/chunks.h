// A model's tensors cut into pieces of about 2 MB, and a few threads that work through such a list:
// what reading, writing and quantizing a whole model share. Not a thread pool, kernels have their
// own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ggml-like-tensor/file/model_source.h"

namespace chaski {

// Strips [first, last) of a tensor (a vector: 0, 1), which are `bytes` bytes at `offset` from the
// tensor's first byte.
struct Chunk {
  size_t tensor;
  int64_t first, last;
  uint64_t offset, bytes;
};

// In order: tensor by tensor, strip by strip. The cut depends on the shapes alone, never on the
// number of threads.
std::vector<Chunk> chunks_of(const ModelSource& source);

// Calls work(0) .. work(jobs - 1), each once, in no promised order, from `threads` threads of which
// the caller's is one. Of several exceptions the one of the lowest job reaches the caller, when all
// threads have stopped.
void for_each_job(size_t jobs, int threads, const std::function<void(size_t)>& work);

// Tensors stand at multiples of this in files and in memory: a cache line, and an AVX-512 register.
constexpr uint64_t kTensorAlign = 64;
constexpr uint64_t aligned(uint64_t offset) {
  return (offset + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
}

}  // namespace chaski
