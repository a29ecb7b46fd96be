// Lists the GPUs, or says in one clause why there are none.
#include <algorithm>

#include "cuda/backend.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/use.h"

namespace chaski {

namespace {

CudaDevice describe(int index) {
  cudaDeviceProp p;
  check_cuda(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties");
  CudaDevice d;
  d.index = index, d.name = p.name, d.total_bytes = p.totalGlobalMem, d.major = p.major,
  d.minor = p.minor;
  d.multiprocessors = p.multiProcessorCount, d.shared_limit = p.sharedMemPerBlockOptin;
  return d;
}

std::string version(int v) { return fmt::format("{}.{}", v / 1000, v % 1000 / 10); }

std::string why_none(cudaError_t status) {
  cudaGetLastError();
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    return "there is no NVIDIA driver";
  // A driver runs every runtime of its own major version.
  if (status == cudaErrorInsufficientDriver && cudaRuntimeGetVersion(&runtime) == cudaSuccess)
    return fmt::format("the NVIDIA driver supports CUDA {}, expected {} or later", version(driver),
                       version(runtime / 1000 * 1000));
  return cudaGetErrorString(status);
}

}  // namespace

CudaDevices cuda_devices(bool ask_free) {
  CudaDevices all;
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    all.why_none = why_none(status);
    return all;
  }
  int before = 0;
  if (ask_free) check_cuda(cudaGetDevice(&before), "cudaGetDevice");
  for (int i = 0; i < count; ++i) {
    CudaDevice d = describe(i);
    if (d.major < 8) {
      all.why_none = fmt::format("{} has compute capability {}.{}, expected 8.0 or later", d.name,
                                 d.major, d.minor);
      continue;
    }
    if (ask_free) {
      check_cuda(cudaSetDevice(i), "cudaSetDevice");
      check_cuda(cudaMemGetInfo(&d.free_bytes, &d.total_bytes), "cudaMemGetInfo");
    }
    all.list.push_back(d);
  }
  if (ask_free && !all.list.empty()) {
    const auto most = std::ranges::max_element(all.list, {}, &CudaDevice::free_bytes);
    // The thread keeps its current device, unless that is reset: to make it current initializes it.
    int current = most->index;
    for (const CudaDevice& d : all.list) {
      bool kept = true;
      if (d.index != most->index)
        DeviceUse::if_unused(d.index, [&] { reset_device(d.index), kept = false; });
      if (kept && d.index == before) current = before;
    }
    check_cuda(cudaSetDevice(current), "cudaSetDevice");
  }
  if (count == 0) all.why_none = "no CUDA-capable device is detected";
  return all;
}

}  // namespace chaski
