// Lists the GPUs, or says in one clause why there are none.
#include "cuda/backend.h"
#include "cuda/device/launch.cuh"

namespace chaski {

namespace {

CudaDevice describe(int index) {
  cudaDeviceProp p;
  check_cuda(cudaGetDeviceProperties(&p, index), "cudaGetDeviceProperties");
  CudaDevice d;
  d.index = index, d.name = p.name, d.total_bytes = p.totalGlobalMem, d.major = p.major,
  d.minor = p.minor;
  d.multiprocessors = p.multiProcessorCount;
  return d;
}

}  // namespace

CudaDevices cuda_devices(bool ask_free) {
  CudaDevices all;
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    const bool asked = cudaDriverGetVersion(&driver) == cudaSuccess;
    all.why_none = asked && driver == 0 ? "there is no NVIDIA driver" : cudaGetErrorString(status);
    return all;
  }
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
  if (count == 0) all.why_none = "no CUDA-capable device is detected";
  return all;
}

}  // namespace chaski
