#include "tests/cuda_shim/runtime.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/cuda_shim/modes.h"

namespace shim {

struct Graph {
  std::vector<Work> work;
};
struct Stream {
  std::deque<Work> queue;
  long queued = 0, done = 0;
  Graph* capture = nullptr;
  int device = 0;
};
struct Event {
  int device = 0;
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
size_t memory = from_environment("CHASKI_SHIM_MEMORY", modes().profile.memory), taken = 0;
cudaError_t last_error = cudaSuccess, sticky = cudaSuccess;
int driver = 13000, captures = 0;
long copy_calls = 0;
thread_local int current = 0;
std::set<int> with_context;
// Static shared memory of a kernel that also has dynamic shared memory, at most. The host compiler
// does not say which variables are a kernel's.
constexpr size_t kStaticShared = 128;
constexpr size_t kSharedUnasked = 48 * 1024;
struct KernelFacts {
  size_t dynamic = kSharedUnasked - kStaticShared;  // that is allowed
  bool launched = false;
};
std::map<std::pair<int, const void*>, KernelFacts>& kernels() {  // by device
  static std::map<std::pair<int, const void*>, KernelFacts> all;
  return all;
}

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

// Runs works in order. If the work after a kernel is a kernel that may start early, its first block
// starts before the kernel in front of it.
class Runner {
 public:
  cudaError_t run(const Work& work, const Work* next) {
    std::unique_ptr<Running> mine = std::move(early_);
    if (!work.grid) return work.run();
    if (!mine) mine = std::make_unique<Running>(*work.grid);
    if (next && next->grid && next->grid->dependent)
      early_ = std::make_unique<Running>(*next->grid);
    return mine->finish() ? cudaSuccess : cudaErrorLaunchFailure;
  }

 private:
  std::unique_ptr<Running> early_;
};

cudaError_t drain(Stream* s, long until) {
  Runner runner;
  while (s->done < until && !s->queue.empty()) {
    const Work work = std::move(s->queue.front());
    s->queue.pop_front();
    ++s->done;
    const Work* next = s->done < until && !s->queue.empty() ? &s->queue.front() : nullptr;
    if (const cudaError_t e = runner.run(work, next); e != cudaSuccess) sticky = e;
  }
  return error(sticky);
}
// Calls that wait or allocate are not allowed while a stream of this thread is captured.
bool capturing() { return captures > 0; }
cudaError_t not_captured() { return error(cudaErrorStreamCaptureUnsupported); }

}  // namespace

void show_devices(int n) {
  devices = n;
  current = 0, with_context.clear();
  sticky = last_error = cudaSuccess;
}
void set_device_memory(size_t bytes) { memory = bytes; }
void set_driver_version(int version) { driver = version; }
int contexts() { return int(with_context.size()); }
long copies() { return copy_calls; }

cudaError_t enqueue(Stream* s, Work work) {
  if (!s) return error(cudaErrorInvalidValue);  // chaski does not use the default stream
  if (sticky != cudaSuccess) return error(sticky);
  if (s->device != current) return error(cudaErrorInvalidResourceHandle);
  if (s->capture) {
    s->capture->work.push_back(std::move(work));
    return cudaSuccess;
  }
  s->queue.push_back(std::move(work));
  ++s->queued;
  return cudaSuccess;
}

cudaError_t launch_grid(Stream* stream, Grid grid) {
  auto shared = std::make_shared<Grid>(std::move(grid));
  return enqueue(stream, {{}, std::move(shared)});
}

cudaError_t check_launch(const Stream* stream, const void* kernel, size_t dynamic, bool dependent) {
  KernelFacts& facts = kernels()[{current, kernel}];
  if (dynamic > facts.dynamic) return error(cudaErrorInvalidValue);
  if (dependent && !modes().profile.early_starts()) return error(cudaErrorNotSupported);
  // the first launch loads the kernel
  if (stream && stream->capture && !facts.launched) return not_captured();
  facts.launched = true;
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
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotSupported:
      return "cudaErrorNotSupported";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
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
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
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
  int runtime = 0;
  cudaRuntimeGetVersion(&runtime);
  if (driver > 0 && driver < runtime) return error(cudaErrorInsufficientDriver);
  return devices ? cudaSuccess : error(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = driver;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device >= devices) return error(cudaErrorInvalidDevice);
  current = device, with_context.insert(device);
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current;
  return cudaSuccess;
}
cudaError_t cudaDeviceReset() {
  with_context.erase(current);
  std::erase_if(kernels(), [](const auto& of) { return of.first.first == current; });
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (device >= devices) return error(cudaErrorInvalidDevice);
  const Profile& is = modes().profile;
  std::snprintf(p->name, sizeof p->name, "host shim %d", device);
  p->totalGlobalMem = memory, p->sharedMemPerBlockOptin = is.shared, p->major = is.major,
  p->minor = is.minor, p->multiProcessorCount = is.multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device >= devices) return error(cudaErrorInvalidDevice);
  const Profile& is = modes().profile;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = is.multiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = is.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = is.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(is.shared);
      break;
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = memory > taken ? memory - taken : 0, *total = memory;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return capturing() ? not_captured() : error(sticky); }

cudaError_t cudaMalloc(void** p, size_t bytes) {
  if (capturing()) return not_captured();
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
  if (capturing()) return not_captured();
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
  if (capturing()) return not_captured();
  *p = std::malloc(bytes);
  return *p ? cudaSuccess : error(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* p) {
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ++copy_calls;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  if (bytes && ((from_device && !on_device(from, bytes)) || (to_device && !on_device(to, bytes))))
    return error(cudaErrorInvalidValue);
  return enqueue(stream, {[=] { return std::memcpy(to, from, bytes), cudaSuccess; }, nullptr});
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  ++copy_calls;
  const size_t last = rows - 1;
  if (rows == 0 || width > to_pitch || width > from_pitch || kind != cudaMemcpyDeviceToDevice ||
      !on_device(to, last * to_pitch + width) || !on_device(from, last * from_pitch + width))
    return error(cudaErrorInvalidValue);
  return enqueue(stream, {[=] {
                            for (size_t r = 0; r < rows; ++r)
                              std::memcpy(static_cast<char*>(to) + r * to_pitch,
                                          static_cast<const char*>(from) + r * from_pitch, width);
                            return cudaSuccess;
                          },
                          nullptr});
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (!on_device(to, bytes)) return error(cudaErrorInvalidValue);
  return enqueue(stream, {[=] { return std::memset(to, value, bytes), cudaSuccess; }, nullptr});
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) {
  *s = new Stream, (*s)->device = current;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  drain(s, s->queued);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  return capturing() ? not_captured() : drain(s, s->queued);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  if (!e->stream) return cudaSuccess;
  return enqueue(s, {[stream = e->stream, at = e->at] { return drain(stream, at); }, nullptr});
}
cudaError_t cudaEventCreate(cudaEvent_t* e) {
  *e = new Event, (*e)->device = current;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return cudaEventCreate(e); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  if (s && e->device != s->device) return error(cudaErrorInvalidResourceHandle);
  const cudaError_t status = enqueue(
      s, {[time = e->time] { return *time = std::chrono::steady_clock::now(), cudaSuccess; },
          nullptr});
  e->stream = s, e->at = s->queued;
  return status;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  if (capturing()) return not_captured();
  return e->stream ? drain(e->stream, e->at) : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  // measured on the host
  *milliseconds = std::chrono::duration<float, std::milli>(*end->time - *start->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode) {
  if (s->capture) return error(cudaErrorInvalidValue);
  s->capture = new Graph, ++captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  *graph = s->capture;
  if (s->capture) --captures;
  s->capture = nullptr;
  return *graph ? cudaSuccess : error(cudaErrorInvalidValue);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
  return enqueue(s, {[work = exec->work] {
                       Runner runner;
                       for (size_t i = 0; i < work.size(); ++i)
                         if (const cudaError_t e =
                                 runner.run(work[i], i + 1 < work.size() ? &work[i + 1] : nullptr);
                             e != cudaSuccess)
                           return e;
                       return cudaSuccess;
                     },
                     nullptr});
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  if (size_t(value) + kStaticShared > modes().profile.shared) return error(cudaErrorInvalidValue);
  kernels()[{current, kernel}].dynamic = size_t(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  attributes->sharedSizeBytes = kStaticShared;
  return cudaSuccess;
}
