// The threads of a CUDA block as fibers: one stack and one point of execution each, switched by
// hand where they wait for one another.
#pragma once
#include <cstddef>
#include <functional>

#include "tests/cuda_shim/vectors.h"

// Of the running thread.
inline dim3 gridDim, blockDim;
inline uint3 blockIdx, threadIdx;

namespace shim {

constexpr unsigned kWholeWarp = 0xffffffffu;

// For use inside a kernel
// ------------------------------------------------------------------------------------------------------

int lane();  // of the running thread, 0..31

// Waits until every thread of the block that has not returned is here.
void barrier(const char* name);
// As barrier, for `threads` threads that name barrier `id` (bar.sync id, threads).
void named_barrier(int id, int threads);

// A warp operation: waits until the lanes in `mask` have all come here with that mask and name;
// then complete(lanes, mask) is called once, with what each lane brought (null for lanes outside
// the mask), and all go on.
void together(unsigned mask, void* mine, const char* name,
              void (*complete)(void* const* lanes, unsigned mask));

void waited();  // griddepcontrol.wait: a launch that may start early must contain it

void* dynamic_shared();  // of the running block; 128-byte aligned, poisoned before each block

// cp.async: copies of 16 bytes, carried out when wait_copies(left) finds more than `left` groups
// outstanding.
void copy_later(void* shared, const void* global);
void commit_copies();
void wait_copies(int left);

// Ends the running block, and with it the launch, with a message: what a device would hang or trap
// on.
[[noreturn]] __attribute__((format(printf, 1, 2))) void stop(const char* format, ...);

// For the runtime
// -------------------------------------------------------------------------------------------------------------

// Runs kernel() as every thread of every block. Returns false, after a line on stderr, if threads
// of a block wait for ever, or if `dependent` and no thread ever waited for the kernels in front.
bool run_grid(dim3 grid, dim3 block, size_t shared_bytes, bool dependent,
              const std::function<void()>& kernel);
const char* last_fault();  // the line

}  // namespace shim
