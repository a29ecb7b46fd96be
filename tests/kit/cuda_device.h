// Device memory for tests: the host shim's device if the shim replaces the runtime, otherwise the
// first GPU, or a visible skip.
#pragma once
#include "cuda/device/launch.cuh"
#include "cuda/device/use.h"
#include "cuda/table.h"
#include "tests/kit/support.h"

namespace chaski::test {

class Device {
 public:
  Device() {
#if defined(CHASKI_CUDA_SHIM)
    shim::show_devices(1);
    reset_device(0);  // a test may have chosen another device
#endif
    int n = 0;
    available_ = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
    cudaGetLastError();
    if (available_)
      check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    else
      std::fprintf(stderr, "SKIPPED: no CUDA device\n");
  }
  ~Device() {
    free_all();
    if (available_) cudaStreamDestroy(stream_);
#if defined(CHASKI_CUDA_SHIM)
    shim::show_devices(0);
#endif
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  bool available() const { return available_; }

  // The memory is valid until free_all().
  std::byte* upload(const void* data, size_t bytes) {
    auto* p = static_cast<std::byte*>(poisoned(bytes));
    if (bytes)
      check_cuda(cudaMemcpyAsync(p, data, bytes, cudaMemcpyHostToDevice, stream_),
                 "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    return p;
  }
  template <class T>
  T* upload(const std::vector<T>& v) {
    return reinterpret_cast<T*>(upload(v.data(), v.size() * sizeof(T)));
  }
  void* poisoned(size_t bytes) {
    if (bytes == 0) return nullptr;
    void* p = nullptr;
    check_cuda(cudaMalloc(&p, bytes), "cudaMalloc");
    owned_.push_back(p);
    check_cuda(cudaMemsetAsync(p, 0xFF, bytes, stream_), "cudaMemsetAsync");
    return p;
  }
  void download(const void* from, void* to, size_t bytes) {
    if (bytes)
      check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
                 "cudaMemcpyAsync");
    check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }
  void free_all() {
    for (void* p : owned_) check_cuda(cudaFree(p), "cudaFree");
    owned_.clear();
  }
  LaunchContext context() const {
    LaunchContext c;
    c.stream = stream_;
    int shared = 0;
    check_cuda(cudaDeviceGetAttribute(&c.multiprocessors, cudaDevAttrMultiProcessorCount, 0),
               "cudaDeviceGetAttribute");
    check_cuda(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0),
               "cudaDeviceGetAttribute");
    c.shared_limit = size_t(shared);
    return c;
  }

 private:
  bool available_ = false;
  cudaStream_t stream_ = nullptr;
  std::vector<void*> owned_;
};

}  // namespace chaski::test
