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

struct KernelFacts {
  size_t fixed = 0;  // static shared memory
  bool raised = false;
};
struct DeviceFacts {
  explicit DeviceFacts(int device)
      : major(attribute_of(device, cudaDevAttrComputeCapabilityMajor)),
        most_shared(size_t(attribute_of(device, cudaDevAttrMaxSharedMemoryPerBlockOptin))) {}
  int major;           // of the compute capability
  size_t most_shared;  // of a block
  std::map<const void*, KernelFacts> kernels;
};
// Every launch needs them, so the runtime is asked once.
std::mutex facts_lock;
std::map<int, DeviceFacts> facts;  // by device

// The caller holds facts_lock.
DeviceFacts& facts_of(int device) {
  const auto known = facts.find(device);
  return known != facts.end() ? known->second : facts.emplace(device, device).first->second;
}

}  // namespace

bool starts_early() {
  static const char* const set = std::getenv("CHASKI_PDL");
  if (set && !std::strcmp(set, "0")) return false;
  const int device = current_device();
  const std::lock_guard lock(facts_lock);
  return facts_of(device).major >= 9;
}

void allow_shared(const char* name, const void* kernel, size_t dynamic) {
  if (dynamic == 0) return;
  const int device = current_device();
  const std::lock_guard lock(facts_lock);
  DeviceFacts& of_device = facts_of(device);
  auto known = of_device.kernels.find(kernel);
  if (known == of_device.kernels.end()) {
    cudaFuncAttributes of_kernel{};
    check_cuda(cudaFuncGetAttributes(&of_kernel, kernel), name);
    known = of_device.kernels.emplace(kernel, KernelFacts{of_kernel.sharedSizeBytes}).first;
  }
  auto& [fixed, raised] = known->second;
  if (raised || fixed + dynamic <= kSharedUnasked) return;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(of_device.most_shared - fixed)),
             name);
  raised = true;
}

void reset_device(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  check_cuda(cudaDeviceReset(), "cudaDeviceReset");
  const std::lock_guard lock(facts_lock);
  facts.erase(device);
}

}  // namespace chaski
