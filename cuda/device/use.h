// Which devices have an open CudaBackend, so that nothing resets them.
#pragma once
#include <map>
#include <mutex>

namespace chaski {

// Destroys the device's context, with all that was allocated and set there (launch.cpp).
void reset_device(int device);

class DeviceUse {
 public:
  explicit DeviceUse(int device) : device_(device) {
    const std::lock_guard lock(mutex_);
    ++users_[device_];
  }
  ~DeviceUse() {
    const std::lock_guard lock(mutex_);
    --users_[device_];
  }
  DeviceUse(const DeviceUse&) = delete;
  DeviceUse& operator=(const DeviceUse&) = delete;
  // Calls reset() if the device has no user; none can begin meanwhile.
  template <class Reset>
  static void if_unused(int device, Reset reset) {
    const std::lock_guard lock(mutex_);
    if (users_[device] == 0) reset();
  }

 private:
  int device_;
  inline static std::mutex mutex_;
  inline static std::map<int, int> users_;  // by device
};

}  // namespace chaski
