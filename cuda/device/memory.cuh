// Owners of device memory, pinned host memory, streams and events. Destructors free them and report
// nothing; the calls that use them report errors.
#pragma once
#include <span>

#include "cuda/device/launch.cuh"

namespace chaski {

template <cudaError_t (*kAlloc)(void**, size_t), cudaError_t (*kFree)(void*)>
class CudaBytes {
 public:
  CudaBytes() = default;
  // Throws Error(memory) with `what` and the needed bytes.
  CudaBytes(size_t bytes, const char* what) : size_(bytes) {
    if (bytes == 0) return;
    void* p = nullptr;
    const cudaError_t status = kAlloc(&p, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      fail(Exit::memory, "cuda: {} need {:.3g} GB, the device has {:.3g} GB free", what,
           double(bytes) / 1e9, double(free) / 1e9);
    }
    check_cuda(status, what);
    data_ = static_cast<std::byte*>(p);
  }
  ~CudaBytes() {
    if (data_) kFree(data_);
  }
  CudaBytes(CudaBytes&& other) noexcept { swap(other); }
  CudaBytes& operator=(CudaBytes&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as(size_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  void swap(CudaBytes& other) { std::swap(data_, other.data_), std::swap(size_, other.size_); }
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

inline cudaError_t device_alloc(void** p, size_t bytes) { return cudaMalloc(p, bytes); }
inline cudaError_t device_free(void* p) { return cudaFree(p); }
inline cudaError_t pinned_alloc(void** p, size_t bytes) { return cudaMallocHost(p, bytes); }
inline cudaError_t pinned_free(void* p) { return cudaFreeHost(p); }
using DeviceBytes = CudaBytes<device_alloc, device_free>;
using PinnedBytes = CudaBytes<pinned_alloc, pinned_free>;

class CudaStream {
 public:
  CudaStream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
  }
  ~CudaStream() { cudaStreamDestroy(stream_); }
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void wait() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) const {
    if (bytes) check_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
  }
  // Within the device's memory; rows are `pitch` bytes apart.
  void copy_rows(void* to, const void* from, size_t pitch, size_t bytes, size_t rows) const {
    if (bytes && rows)
      check_cuda(
          cudaMemcpy2DAsync(to, pitch, from, pitch, bytes, rows, cudaMemcpyDeviceToDevice, stream_),
          "cudaMemcpy2DAsync");
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// Timing costs a little; events that are only for ordering are made without it.
class CudaEvent {
 public:
  explicit CudaEvent(bool timing = false) {
    check_cuda(cudaEventCreateWithFlags(&event_, timing ? 0 : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~CudaEvent() { cudaEventDestroy(event_); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;
  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  // returns at once if never recorded
  void wait() const { check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize"); }
  double seconds_since(const CudaEvent& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return double(milliseconds) / 1e3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// The steps of a plan, captured as one launch.
class CudaGraph {
 public:
  CudaGraph() = default;
  ~CudaGraph() {
    if (exec_) cudaGraphExecDestroy(exec_);
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  bool made() const { return exec_ != nullptr; }
  // work() puts launches on the stream; they are recorded, not run. If it throws, the stream is
  // left unchanged.
  template <class Work>
  void capture(cudaStream_t stream, Work work) {
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate");
  }
  void launch(cudaStream_t stream) {
    check_cuda(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch");
  }
  void reset() {
    if (exec_) cudaGraphExecDestroy(exec_);
    exec_ = nullptr;
  }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace chaski
