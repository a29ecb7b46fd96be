// cuda/backend.h in a build without nvcc: no devices, and why.
#include "cuda/backend.h"

namespace chaski {

CudaDevices cuda_devices(bool) { return {{}, "this chaski was built without CUDA"}; }

bool cuda_can_draw(const CudaDraw&) { return false; }

std::unique_ptr<CudaBackend> CudaBackend::open(const Weights&, const CudaOptions& options) {
  fail(Exit::device, "cuda: device {} is wanted, but {}", options.device, cuda_devices().why_none);
}

}  // namespace chaski
