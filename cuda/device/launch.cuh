// Starts kernels, and provides the few device functions that the host shim (tests/cuda_shim/)
// cannot define under the names of <cuda_runtime.h>. Kernels are compiled twice: by nvcc, and by
// the host compiler for tests without a GPU. Within cuda/, only this file and mma.cuh use
// conditional compilation. Nothing here knows an op.
#pragma once
#include <cuda_runtime.h>

#include <string>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

// On failure throws an error that names the call: exit code 6, or 4 if the device's memory is
// exhausted.
inline void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that the next call does not report it again
  fail(status == cudaErrorMemoryAllocation ? Exit::memory : Exit::device,
       "cuda: {} failed: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
}

struct Launch {
  dim3 grid;
  int threads;
  cudaStream_t stream;
  size_t shared = 0;  // dynamic shared memory, bytes
  // If true, the kernel may start before the previous kernel on the stream has ended. It must then
  // call wait_for_previous() before it reads anything that a kernel wrote, and before it writes
  // anything. A kernel that never calls it must not be launched this way. Nor may a kernel after it
  // rely on its having waited. So every kernel should wait.
  bool dependent = true;
};

// What launches on the current device need to know (launch.cpp).
//
// Whether a kernel may start before the previous one has ended (programmatic dependent launch). It
// is defined for devices of compute capability 9.0 and later. CHASKI_PDL=0 switches it off.
bool starts_early();
// Allows launches of `kernel` with `dynamic` bytes of dynamic shared memory. Without this, its
// static and dynamic shared memory together are limited to 48 KB. The limit of a kernel is raised
// once, as far as the device allows, and never lowered, because captured graphs contain launches
// that need it.
void allow_shared(const char* name, const void* kernel, size_t dynamic);

// Arguments are converted to the kernel's parameter types. `name` is for the error message.
template <class... P, class... A>
void launch(const char* name, const Launch& l, void (*kernel)(P...), A... args) {
  if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0) return;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = l.grid, config.blockDim = dim3(unsigned(l.threads)),
  config.dynamicSmemBytes = l.shared, config.stream = l.stream;
  config.attrs = &attribute, config.numAttrs = l.dependent && starts_early() ? 1 : 0;
  allow_shared(name, reinterpret_cast<const void*>(kernel), l.shared);
  check_cuda(cudaLaunchKernelEx(&config, kernel, P(args)...), name);
}

#if defined(__CUDACC__)

// Programmatic dependent launch (sm_90 and later). The blocks of the next kernel may start as soon
// as every block of this one has called start_next(). wait_for_previous() returns when the previous
// kernels are complete and their writes are visible.
__device__ __forceinline__ void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void start_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char dynamic_shared_bytes[];
  return reinterpret_cast<T*>(dynamic_shared_bytes);
}

// Hints: prefetch a line into L2; load data that will not be used again. The data is constant, but
// the loads are not .nc: if registers are scarce, nvcc would move such loads past
// wait_for_previous().
__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
__device__ __forceinline__ uint4 load_once(const void* p) {  // 16 bytes, 16-byte aligned, read-only
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_once8(const void* p) {  // 8 bytes, 8-byte aligned, read-only
  uint2 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p));
  return v;
}

// Chooses bytes from y:x by the nibbles of the selector's low half. A nibble of 8 or more gives the
// chosen byte's top bit eight times. The prmt instruction does that, __byte_perm does not.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  uint32_t r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(selector));
  return r;
}
// The bits of x where `mask` has ones, and those of y where it has zeros. Written with operators
// and a constant mask it would take more instructions, because nvcc rearranges the masks.
__device__ __forceinline__ uint32_t select_bits(uint32_t mask, uint32_t x, uint32_t y) {
  uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xca;" : "=r"(r) : "r"(mask), "r"(x), "r"(y));
  return r;
}

// Copies 16 bytes from global to shared memory without a register. Groups of copies complete in
// order.
__device__ __forceinline__ void copy_async16(void* shared, const void* global) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(unsigned(__cvta_generic_to_shared(shared))),
      "l"(global));
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_copies() {  // waits until at most kLeft groups are in flight
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

#elif defined(CHASKI_CUDA_SHIM)  // otherwise: a host file that only launches kernels

inline void wait_for_previous() { shim::wait_for_previous(); }
inline void start_next() {}
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(shim::dynamic_shared());
}
inline void prefetch_l2(const void*) {}
inline uint4 load_once(const void* p) { return *static_cast<const uint4*>(p); }
inline uint2 load_once8(const void* p) { return *static_cast<const uint2*>(p); }
inline uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t selector) {
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t s = selector >> 4 * i, byte = __byte_perm(x, y, s) & 255;
    r |= (s & 8 ? (byte & 128 ? 255u : 0u) : byte) << 8 * i;
  }
  return r;
}
inline uint32_t select_bits(uint32_t mask, uint32_t x, uint32_t y) {
  return (x & mask) | (y & ~mask);
}
// The copy happens at the wait, not earlier. A kernel that reads too early reads the old contents.
inline void copy_async16(void* shared, const void* global) { shim::copy_later(shared, global); }
inline void commit_copies() { shim::commit_copies(); }
template <int kLeft>
void wait_copies() {
  shim::wait_copies(kLeft);
}

#endif

}  // namespace chaski
