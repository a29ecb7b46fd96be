#include "tests/cuda_shim/runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace shim {

using Work = std::function<cudaError_t()>;

struct Graph {
  std::vector<Work> work;
};
struct Stream {
  std::deque<Work> queue;
  long queued = 0, done = 0;
  Graph* capture = nullptr;
};
struct Event {
  Stream* stream = nullptr;
  // the number of works queued on the stream before it, and the time when it was reached
  long at = 0;
  std::shared_ptr<std::chrono::steady_clock::time_point> time =
      std::make_shared<std::chrono::steady_clock::time_point>();
};

namespace {

#if defined(CHASKI_ADDRESS_SANITIZER)
constexpr size_t kGuard = 0;  // AddressSanitizer has its own guards
#else
constexpr size_t kGuard = 256;
#endif
// Tests of the program over the shim set environment variables; tests in the same process call
// show_devices() and set_device_memory().
size_t from_environment(const char* name, size_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}
int devices = int(from_environment("CHASKI_SHIM_DEVICES", 0));
size_t memory = from_environment("CHASKI_SHIM_MEMORY", size_t(1) << 34), taken = 0;
cudaError_t last_error = cudaSuccess, sticky = cudaSuccess;

std::map<const char*, size_t>& allocations() {  // start -> bytes
  static std::map<const char*, size_t> all;
  return all;
}
bool on_device(const void* p, size_t bytes) {
  const auto* at = static_cast<const char*>(p);
  auto next = allocations().upper_bound(at);
  if (next == allocations().begin()) return false;
  const auto& [start, size] = *--next;
  return at + bytes <= start + size;
}

cudaError_t error(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

cudaError_t drain(Stream* s, long until) {
  while (s->done < until && !s->queue.empty()) {
    const Work work = std::move(s->queue.front());
    s->queue.pop_front();
    ++s->done;
    if (const cudaError_t e = work(); e != cudaSuccess) sticky = e;
  }
  return error(sticky);
}

}  // namespace

void show_devices(int n) {
  devices = n;
  sticky = last_error = cudaSuccess;
}
void set_device_memory(size_t bytes) { memory = bytes; }

cudaError_t enqueue(Stream* s, Work work) {
  if (!s) return error(cudaErrorInvalidValue);  // chaski does not use the default stream
  if (sticky != cudaSuccess) return error(sticky);
  if (s->capture) {
    s->capture->work.push_back(std::move(work));
    return cudaSuccess;
  }
  s->queue.push_back(std::move(work));
  ++s->queued;
  return cudaSuccess;
}

}  // namespace shim

using namespace shim;

const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
  }
  return "unknown";
}
const char* cudaGetErrorString(cudaError_t e) {
  switch (e) {
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
      return last_fault();
    default:
      return "an error";
  }
}
cudaError_t cudaGetLastError() {
  const cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}

cudaError_t cudaGetDeviceCount(int* n) {
  *n = devices;
  return devices ? cudaSuccess : error(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return device < devices ? cudaSuccess : error(cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device >= devices) return error(cudaErrorInvalidDevice);
  std::snprintf(p->name, sizeof p->name, "host shim %d", device);
  p->totalGlobalMem = memory, p->major = 9, p->minor = 0, p->multiProcessorCount = 4;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device >= devices) return error(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = 227 * 1024;
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = memory > taken ? memory - taken : 0, *total = memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return error(sticky); }

cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (taken + bytes > memory) return error(cudaErrorMemoryAllocation);
  void* all = nullptr;
  if (posix_memalign(&all, 256, bytes + 2 * kGuard)) return error(cudaErrorMemoryAllocation);
  auto* start = static_cast<char*>(all) + kGuard;
  std::memset(all, 0xAB, bytes + 2 * kGuard);
  std::memset(start, 0xFF, bytes);
  allocations()[start] = bytes;
  taken += bytes;
  *p = start;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  if (!p) return cudaSuccess;
  const auto it = allocations().find(static_cast<const char*>(p));
  if (it == allocations().end()) return error(cudaErrorInvalidValue);
  bool whole = true;
  for (size_t i = 0; i < kGuard; ++i)
    whole &= it->first[-1 - long(i)] == char(0xAB) && it->first[it->second + i] == char(0xAB);
  taken -= it->second;
  std::free(const_cast<char*>(it->first) - kGuard);
  allocations().erase(it);
  if (!whole) std::fprintf(stderr, "cuda shim: an allocation was written beyond its ends\n");
  return whole ? cudaSuccess : error(cudaErrorInvalidValue);
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
  *p = std::malloc(bytes);
  return *p ? cudaSuccess : error(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (bytes && ((from_device && !on_device(from, bytes)) || (to_device && !on_device(to, bytes))))
    return error(cudaErrorInvalidValue);
  return enqueue(stream, [=] { return std::memcpy(to, from, bytes), cudaSuccess; });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (!on_device(to, bytes)) return error(cudaErrorInvalidValue);
  return enqueue(stream, [=] { return std::memset(to, value, bytes), cudaSuccess; });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = new Stream;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  drain(s, s->queued);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) { return drain(s, s->queued); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (!e->stream) return cudaSuccess;
  return enqueue(s, [stream = e->stream, at = e->at] { return drain(stream, at); });
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new Event;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  const cudaError_t status = enqueue(
      s, [time = e->time] { return *time = std::chrono::steady_clock::now(), cudaSuccess; });
  e->stream = s, e->at = s->queued;
  return status;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  return e->stream ? drain(e->stream, e->at) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  // measured on the host
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (s->capture) return error(cudaErrorInvalidValue);
  s->capture = new Graph;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  *graph = s->capture;
  s->capture = nullptr;
  return *graph ? cudaSuccess : error(cudaErrorInvalidValue);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  return enqueue(s, [work = exec->work] {
    for (const Work& w : work)
      if (const cudaError_t e = w(); e != cudaSuccess) return e;
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int value) {
  return value <= 227 * 1024 ? cudaSuccess : error(cudaErrorInvalidValue);
}
