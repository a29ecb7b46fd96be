// Runs the threads of a CUDA block as fibers. Each has its own stack; they are switched explicitly
// where they wait for one another.
#pragma once
#include <cstddef>
#include <functional>

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

void waited();  // griddepcontrol.wait: a kernel that may start early must call it

void* dynamic_shared();  // of the running block; 128-byte aligned, poisoned before each block

// cp.async: copies 16 bytes. The copy happens when wait_copies(left) finds more than `left` groups
// outstanding.
void copy_later(void* shared, const void* global);
void commit_copies();
void wait_copies(int left);

// Ends the running block and the launch with a message, where a device would hang or trap.
[[noreturn]] __attribute__((format(printf, 1, 2))) void stop(const char* format, ...);

// --- For the runtime ---

// Runs kernel() as every thread of every block. Returns false, after a message on stderr, if
// threads of a block wait for ever, or if `dependent` is set and no thread waited for the previous
// kernels.
bool run_grid(dim3 grid, dim3 block, size_t shared_bytes, bool dependent,
              const std::function<void()>& kernel);
const char* last_fault();  // the message

}  // namespace shim
