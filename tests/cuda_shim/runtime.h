// The runtime API as far as chaski calls it. A stream is a queue whose work runs when the host
// waits for it, never earlier. So a result that is read too early is the poison that fills device
// memory. Captured calls are kept and run at each replay. Streams, events and memory belong to the
// device that was current when they were made. During capture, calls that allocate memory or wait
// fail, as on a device.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>

#include "tests/cuda_shim/fibers.h"

#define CHASKI_CUDA_SHIM 1

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
};
const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetLastError();

enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
union cudaLaunchAttributeValue {
  int programmaticStreamSerializationAllowed;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};

namespace shim {
struct Stream;
struct Event;
struct Graph;

// The number of devices that the shim shows. It is 0 unless a test sets it, so that programs under
// test find a machine without a GPU.
void show_devices(int n);
// The memory of a device; cudaMalloc fails beyond it.
void set_device_memory(size_t bytes);
// The CUDA version that the driver supports: 1000 major + 10 minor.
void set_driver_version(int version);
// Devices that have a context: they were made current, and were not reset since.
int contexts();
// Calls of cudaMemcpyAsync and cudaMemcpy2DAsync so far.
long copies();

// One work of a stream: a kernel, or a call.
struct Work {
  std::function<cudaError_t()> run;
  std::shared_ptr<Grid> grid;
};
cudaError_t enqueue(Stream* stream, Work work);
cudaError_t launch_grid(Stream* stream, Grid grid);
// Whether the current device's profile allows such a launch.
cudaError_t check_launch(const Stream* stream, const void* kernel, size_t dynamic, bool dependent);
}  // namespace shim

using cudaStream_t = shim::Stream*;
using cudaEvent_t = shim::Event*;
using cudaGraph_t = shim::Graph*;
using cudaGraphExec_t = shim::Graph*;
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes;  // static shared memory
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

cudaError_t cudaGetDeviceCount(int* n);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceReset();
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMalloc(void** p, size_t bytes);  // poisoned, between guards, 256-byte aligned
cudaError_t cudaFree(void* p);                   // cudaErrorInvalidValue if a guard was written
cudaError_t cudaMallocHost(void** p, size_t bytes);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t rows, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t s);
cudaError_t cudaStreamSynchronize(cudaStream_t s);
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags = 0);
cudaError_t cudaEventCreate(cudaEvent_t* e);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t e);
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s);
cudaError_t cudaEventSynchronize(cudaEvent_t e);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);

// Arguments are copied when the call is made, as on a device.
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... a) {
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<P>> && ...),
                "kernel arguments are copied as bytes");
  const cudaLaunchConfig_t c = *config;
  const unsigned threads = c.blockDim.x * c.blockDim.y * c.blockDim.z;
  if (threads == 0 || threads > 1024 || c.gridDim.y > 65535 || c.gridDim.z > 65535)
    return cudaErrorInvalidValue;
  const bool dependent = c.numAttrs > 0 && c.attrs[0].val.programmaticStreamSerializationAllowed;
  if (const cudaError_t e = shim::check_launch(c.stream, reinterpret_cast<const void*>(kernel),
                                               c.dynamicSmemBytes, c.numAttrs > 0);
      e != cudaSuccess)
    return e;
  return shim::launch_grid(c.stream, {c.gridDim, c.blockDim, c.dynamicSmemBytes, dependent,
                                      [kernel, arguments = std::tuple<P...>(a...)]() mutable {
                                        std::apply(kernel, arguments);
                                      }});
}
