// Measures the limits of a device, which `chaski bench` compares its kernels with.
#pragma once
#include "cuda/backend.h"
#include "cuda/device/memory.cuh"

namespace chaski {

// The best of several tries on an idle stream; takes about half a second. `copy` is 0 if there is
// no memory for it.
CudaLimits cuda_limits(const CudaStream& stream, int multiprocessors);

}  // namespace chaski
