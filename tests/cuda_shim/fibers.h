// Runs the threads of a CUDA block as fibers. Each has its own stack; they are switched explicitly
// where they wait for one another.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>

#include "tests/cuda_shim/vectors.h"

// The indices of the running thread.
inline dim3 gridDim, blockDim;
inline uint3 blockIdx, threadIdx;

namespace shim {

constexpr unsigned kWholeWarp = 0xffffffffu;

// --- For use inside a kernel ---

int lane();  // of the running thread, 0..31

// Waits until every thread of the block that has not returned is here.
void barrier(const char* name);
// The same for `threads` threads that wait at barrier `id` (bar.sync id, threads).
void named_barrier(int id, int threads);

// A warp operation. Waits until all lanes in `mask` are here with the same mask and name. Then
// complete(lanes, mask) is called once with what each lane passed (null for lanes outside the
// mask), and all continue.
void together(unsigned mask, void* mine, const char* name,
              void (*complete)(void* const* lanes, unsigned mask));

// griddepcontrol.wait. Every thread of a kernel that may start early must call it.
void wait_for_previous();

void* dynamic_shared();  // of the running block; 128-byte aligned, poisoned before each block

// cp.async: copies 16 bytes. The copy happens when wait_copies(left) finds more than `left` groups
// outstanding.
void copy_later(void* shared, const void* global);
void commit_copies();
void wait_copies(int left);

// Ends the running block and the launch with a message, where a device would hang or trap.
[[noreturn]] __attribute__((format(printf, 1, 2))) void stop(const char* format, ...);

// --- For the runtime ---

struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;       // dynamic shared memory, bytes
  bool dependent = false;  // may start before the kernel in front of it has ended
  std::function<void()> kernel;
};

// A grid that is running. If it is dependent, its first block runs up to its waits when it is made:
// before the kernel in front of it has run at all. So what it reads too early is old.
class Running {
 public:
  explicit Running(const Grid& grid);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  // Runs the rest. Returns false, after a message on stderr, if threads of a block wait for ever.
  // The same if the grid is dependent and a thread did not wait for the previous kernels.
  bool finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
const char* last_fault();  // the message

}  // namespace shim
