// What a device does at most: the yardstick beside its kernels.
#pragma once
#include "cuda/backend.h"
#include "cuda/device/memory.cuh"

namespace chaski {

// Best of several tries on an idle stream; takes about half a second. The copy is 0 if there is no
// memory for it.
CudaLimits cuda_limits(const CudaStream& stream, int multiprocessors);

}  // namespace chaski
