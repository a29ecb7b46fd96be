// Implements cuda/backend.h in a build without CUDA: there are no devices, and a message says why.
#include "cuda/backend.h"

namespace chaski {

CudaDevices cuda_devices(bool) { return {{}, "this chaski was built without CUDA"}; }

bool cuda_can_draw(const CudaDraw&) { return false; }

uint64_t cuda_bytes_needed(std::span<const Weight* const>, const CudaOptions&, uint64_t) {
  return 0;
}
void CudaWorking::add(Graph, const Batch&, const StateLayout&) {}
uint64_t CudaWorking::bytes() const { return 0; }

std::unique_ptr<CudaBackend> CudaBackend::open(std::vector<const Weight*>,
                                               const CudaOptions& options) {
  fail(Exit::device, "cuda: device {} was requested, but {}", options.device,
       cuda_devices().why_none);
}

}  // namespace chaski
