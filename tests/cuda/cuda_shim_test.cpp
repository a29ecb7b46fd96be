// Tests of the shim (tests/cuda_shim/). What would hang, trap or go wrong on a device must be
// reported here; otherwise the other tests prove nothing. On a GPU the same kernels show that the
// emulation matches the device where its behaviour is defined.
#include "cuda/device/launch.cuh"
#include "cuda/device/mma.cuh"
#include "tests/kit/cuda_device.h"

using namespace chaski;
using namespace chaski::test;

#if defined(CHASKI_CUDA_SHIM)
#include "tests/cuda_shim/modes.h"

namespace {

void run(Device& device, unsigned blocks, int threads, void (*kernel)(int*), int* data,
         bool dependent = false) {
  launch("kernel", {dim3(blocks), threads, device.context().stream, 64, dependent}, kernel, data);
}
std::string fault_of(void (*kernel)(int*), int threads, bool dependent = false) {
  std::string line;
  {
    Device device;
    int* data = device.upload(std::vector<int>(64));
    run(device, 2, threads, kernel, data, dependent);
    line = error_of([&] { device.download(data, data, 0); }).what();
  }
  return line;
}

// Multiplies a (16 x 32), whose row r, column c is r - c, with b (32 x 8), whose row c, column n is
// c * n - 7. Fragments are laid out as in mma.cuh.
__global__ void multiply(int* out) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  uint32_t a[4] = {}, b[2] = {};
  int32_t d[4] = {1, 1, 1, 1};
  for (int i = 0; i < 4; ++i)
    for (int k = 0; k < 4; ++k)
      a[i] |= uint32_t(uint8_t(g + 8 * (i % 2) - (16 * (i / 2) + 4 * t + k))) << 8 * k;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 4; ++k)
      b[i] |= uint32_t(uint8_t((16 * i + 4 * t + k) % 5 * g - 7)) << 8 * k;
  mma_s8(d, a, b);
  for (int i = 0; i < 4; ++i) out[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = d[i];
}

__global__ void copies(int* data) {
  int* shared = dynamic_shared<int>();
  if (threadIdx.x == 0) copy_async16(shared, data);
  commit_copies();
  const int early = shared[1];
  wait_copies<0>();
  __syncthreads();
  data[16 + threadIdx.x] = threadIdx.x == 0 && early == data[1] ? -1 : shared[threadIdx.x % 4];
}

__global__ void votes(int* data) {
  const int lane = threadIdx.x % 32;
  data[threadIdx.x] = int(__ballot_sync(~0u, lane % 3 == 0)) + __shfl_down_sync(~0u, lane, 4, 16) +
                      (lane < 16 ? __shfl_xor_sync(0xffffu, lane, 1) : 0);
}

}  // namespace

TEST_CASE("cuda shim: matrix instructions, copies, shuffles and votes work as on a device") {
  const shim::InModes modes("");  // a copy is visible after the wait only
  Device device;
  int out[128];
  auto* data = static_cast<int*>(device.poisoned(512));
  run(device, 1, 32, multiply, data);
  device.download(data, out, 512);
  for (int r = 0; r < 16; ++r)
    for (int n = 0; n < 8; ++n) {
      int want = 1;
      for (int c = 0; c < 32; ++c) want += (r - c) * (c % 5 * n - 7);
      CHECK(out[8 * r + n] == want);
    }
  data =
      device.upload(std::vector<int>{5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  run(device, 1, 4, copies, data);
  device.download(data, out, 80);
  for (int i = 0; i < 4; ++i) CHECK(out[16 + i] == 5 + i);  // visible after the wait, not before
  data = static_cast<int*>(device.poisoned(256));
  run(device, 1, 64, votes, data);
  device.download(data, out, 256);
  for (int i = 0; i < 64; ++i) {
    const int lane = i % 32, down = lane % 16 + 4 < 16 ? lane + 4 : lane;
    CHECK(out[i] == int(0x49249249) + down + (lane < 16 ? lane ^ 1 : 0));
  }
}

TEST_CASE(
    "cuda shim: threads that wait for ever are named, and so is a kernel that never waits for the "
    "kernels before it") {
  const shim::InModes modes("");  // the first thread and block are named
  const std::string divergent = fault_of(
      [](int*) {
        if (threadIdx.x < 40)
          __syncthreads();
        else
          __shfl_xor_sync(~0u, 1, 1);
      },
      64);
  CHECK(divergent.find("from thread 0 on at __syncthreads; from thread 40 on at __shfl_xor_sync "
                       "(mask ffffffff).") != std::string::npos);
  CHECK(divergent.find("block (0, 0, 0)") != std::string::npos);
  CHECK(fault_of(
            [](int*) {
              if (threadIdx.x > 2) __syncwarp();
            },
            32)
            .find("from thread 0 on has returned; from thread 3 on at __syncwarp") !=
        std::string::npos);
  CHECK(fault_of([](int*) { __shfl_sync(0xffu, 1, 9); }, 8)
            .find("reads lane 9, which is not in the mask") != std::string::npos);
  CHECK(fault_of([](int* p) { p[0] = 1; }, 32, true).find("never waits") != std::string::npos);
  CHECK(fault_of(
            [](int* p) {
              wait_for_previous();
              p[0] = 1;
            },
            32, true) == "no error");
}

TEST_CASE("cuda shim: device memory is poisoned and guarded, and streams run when waited for") {
  Device device;
  int value = 0;
  auto* data = static_cast<int*>(device.poisoned(4));
  int* source = device.upload(std::vector<int>{42});
  const cudaStream_t stream = device.context().stream;
  check_cuda(cudaMemcpyAsync(data, source, 4, cudaMemcpyDeviceToDevice, stream), "copy");
  check_cuda(cudaMemcpyAsync(&value, data, 4, cudaMemcpyDeviceToHost, stream), "copy");
  CHECK(value == 0);
  check_cuda(cudaStreamSynchronize(stream), "wait");
  CHECK(value == 42);
  CHECK(cudaMemcpyAsync(data, source, 8, cudaMemcpyDeviceToDevice, stream) ==
        cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(&value, &value, 4, cudaMemcpyDeviceToHost, stream) ==
        cudaErrorInvalidValue);
}

#endif
