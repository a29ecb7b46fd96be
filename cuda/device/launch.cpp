// Facts of devices and kernels that launches depend on.
#include "cuda/device/launch.cuh"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "cuda/device/use.h"

namespace chaski {

namespace {

// Shared memory that every kernel may have without asking.
constexpr size_t kSharedUnasked = 48 * 1024;

int attribute_of(int device, cudaDeviceAttr attribute) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}
int current_device() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

std::mutex raised_lock;
std::map<std::pair<int, const void*>, bool> raised;  // by device and kernel

}  // namespace

bool starts_early() {
  static const char* const set = std::getenv("CHASKI_PDL");
  if (set && !std::strcmp(set, "0")) return false;
  return attribute_of(current_device(), cudaDevAttrComputeCapabilityMajor) >= 9;
}

void allow_shared(const char* name, const void* kernel, size_t dynamic) {
  if (dynamic == 0) return;
  const int device = current_device();
  const std::lock_guard lock(raised_lock);
  bool& done = raised[{device, kernel}];
  if (done) return;
  cudaFuncAttributes of_kernel{};
  check_cuda(cudaFuncGetAttributes(&of_kernel, kernel), name);
  const size_t fixed = of_kernel.sharedSizeBytes;
  if (fixed + dynamic <= kSharedUnasked) return;
  const auto most = size_t(attribute_of(device, cudaDevAttrMaxSharedMemoryPerBlockOptin));
  check_cuda(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(most - fixed)),
      name);
  done = true;
}

void reset_device(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  check_cuda(cudaDeviceReset(), "cudaDeviceReset");
  const std::lock_guard lock(raised_lock);
  std::erase_if(raised, [&](const auto& of) { return of.first.first == device; });
}

}  // namespace chaski
