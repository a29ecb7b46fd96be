// Tests of the shim's modes (tests/cuda_shim/modes.h): each mode shows the fault that it is for, in
// a kernel that is wrong on purpose and whose result is right when the blocks and threads run in
// order.
#include "cuda/device/launch.cuh"
#include "cuda/device/memory.cuh"
#include "cuda/device/mma.cuh"
#include "tests/kit/cuda_device.h"

using namespace chaski;
using namespace chaski::test;

#if defined(CHASKI_CUDA_SHIM)
#include "tests/cuda_shim/modes.h"

namespace {

using shim::InModes;
using Kernel = void (*)(int*);

constexpr int kInts = 64;

// What the kernels leave in 64 ints that are 0, one after another.
std::vector<int> result_of(unsigned blocks, int threads, std::initializer_list<Kernel> kernels,
                           bool dependent = false) {
  Device device;
  int* data = device.upload(std::vector<int>(kInts));
  for (const Kernel kernel : kernels)
    launch("kernel", {dim3(blocks), threads, device.context().stream, 256, dependent}, kernel,
           data);
  std::vector<int> out(kInts);
  device.download(data, out.data(), kInts * sizeof(int));
  return out;
}

// Whether any of some seeds gives another result than blocks and threads in order.
bool seeds_differ(unsigned blocks, int threads, Kernel kernel) {
  std::vector<int> plain;
  {
    const InModes modes("");
    plain = result_of(blocks, threads, {kernel});
  }
  for (const char* seed : {"seed=1", "seed=2", "seed=3", "seed=4", "seed=5", "seed=6"}) {
    const InModes modes(seed);
    if (result_of(blocks, threads, {kernel}) != plain) return true;
  }
  return false;
}

std::string error_in(Kernel kernel, int threads, bool dependent) {
  return error_of([&] { result_of(1, threads, {kernel}, dependent); }).what();
}

void fill(int* p) {
  wait_for_previous();
  p[threadIdx.x] = 7;
}

}  // namespace

TEST_CASE("cuda shim modes: a kernel that reads before its wait reads what is old") {
  const InModes modes("");
  CHECK(result_of(1, 32,
                  {fill,
                   [](int* p) {
                     const int early = p[threadIdx.x];
                     wait_for_previous();
                     p[32 + threadIdx.x] = early;
                   }},
                  true)[32] == 0);
  CHECK(result_of(1, 32,
                  {fill,
                   [](int* p) {
                     wait_for_previous();
                     p[32 + threadIdx.x] = p[threadIdx.x];
                   }},
                  true)[32] == 7);
  // a value that is written too early is lost
  CHECK(result_of(1, 32,
                  {fill,
                   [](int* p) {
                     p[threadIdx.x] = 8;
                     wait_for_previous();
                   }},
                  true)[0] == 7);
  CHECK(error_in(
            [](int* p) {
              if (threadIdx.x != 5) wait_for_previous();
              p[threadIdx.x] = 1;
            },
            32, true)
            .find("thread 5 never waits") != std::string::npos);
}

TEST_CASE("cuda shim modes: seeds change the order of lanes, warps and blocks") {
  // a missing __syncwarp, a missing __syncthreads, and a block that takes itself to be the last
  CHECK(seeds_differ(1, 32, [](int* p) {
    int* shared = dynamic_shared<int>();
    if (threadIdx.x == 0) shared[0] = 5;
    p[threadIdx.x] = shared[0];
  }));
  CHECK(!seeds_differ(1, 32, [](int* p) {
    int* shared = dynamic_shared<int>();
    if (threadIdx.x == 0) shared[0] = 5;
    __syncwarp();
    p[threadIdx.x] = shared[0];
  }));
  CHECK(seeds_differ(1, 64, [](int* p) {
    int* shared = dynamic_shared<int>();
    if (threadIdx.x == 0) shared[0] = 5;
    __syncwarp();
    p[threadIdx.x] = shared[0];
  }));
  CHECK(seeds_differ(8, 1, [](int* p) {
    const int finished = atomicAdd(p, 1);
    if (blockIdx.x == gridDim.x - 1) p[1] = finished;
  }));
  CHECK(!seeds_differ(8, 1, [](int* p) {
    if (atomicAdd(p, 1) == int(gridDim.x) - 1) p[1] = 1;
  }));
  // Two blocks run in turns, so a block sees the other one in the middle.
  CHECK(seeds_differ(2, 1, [](int* p) {
    const int before = p[0];
    __syncthreads();
    p[0] = before + 1;
  }));
}

TEST_CASE("cuda shim modes: asynchronous copies land at once, late, or by chance") {
  const Kernel overwrites = [](int* p) {  // the ring has one buffer too few
    int* shared = dynamic_shared<int>();
    for (int i = 0; i < 4; ++i) shared[i] = 1;
    copy_async16(shared, p + 32);
    commit_copies();
    p[0] = shared[0];
    wait_copies<0>();
    p[1] = shared[0];
  };
  for (const auto& [words, read] : {std::pair{"", 1}, {"early", 0}}) {
    const InModes modes(words);
    const std::vector<int> out = result_of(1, 1, {overwrites});
    CHECK(out[0] == read);
    CHECK(out[1] == 0);
  }
  CHECK(seeds_differ(1, 1, overwrites));
}

TEST_CASE("cuda shim modes: static shared memory is poisoned for each block") {
  const Kernel keeps = [](int* p) {
    __shared__ int kept;
    p[blockIdx.x] = kept;
    kept = 3;
    __syncthreads();
    p[8 + blockIdx.x] = kept;  // also if another block ran meanwhile
  };
  for (const char* words : {"", "seed=4"}) {
    const InModes modes(words);
    const std::vector<int> out = result_of(4, 1, {keeps});
    for (size_t i = 0; i < 4; ++i) {
      CHECK(out[i] == -1);
      CHECK(out[8 + i] == 3);
    }
  }
}

TEST_CASE("cuda shim modes: shared memory and early starts are limited as by the profile") {
  const InModes modes("rtx3060");
  Device device;
  CHECK(device.context().multiprocessors == 28);
  CHECK(device.context().shared_limit == 101376);
  int* data = device.upload(std::vector<int>(kInts));
  cudaLaunchAttribute early = {};
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{dim3(1), dim3(32), 0, device.context().stream, &early, 0};
  const auto start = [&](size_t shared, unsigned attributes) {
    config.dynamicSmemBytes = shared, config.numAttrs = attributes;
    return cudaLaunchKernelEx(&config, fill, data);
  };
  // 48 KB with static shared memory need the attribute
  CHECK(start(48 * 1024 - 128, 0) == cudaSuccess);
  CHECK(start(48 * 1024, 0) == cudaErrorInvalidValue);
  const auto* kernel = reinterpret_cast<const void*>(fill);
  const auto allow = [&](int bytes) {
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  CHECK(allow(101376) == cudaErrorInvalidValue);
  CHECK(allow(101376 - 128) == cudaSuccess);
  CHECK(start(48 * 1024, 0) == cudaSuccess);
  CHECK(start(0, 1) == cudaErrorNotSupported);
  // launch() asks for neither more nor less
  CHECK_NOTHROW(launch("fill", {dim3(1), 32, device.context().stream, 100000, true}, fill, data));
  CHECK_NOTHROW(launch("fill", {dim3(1), 32, device.context().stream, 0, true}, fill, data));
  device.download(data, data, 0);
  cudaGetLastError();
}

TEST_CASE("cuda shim modes: matrix instructions can add as tensor cores do") {
  const Kernel adds = [](int* p) {
    // row 0 of a is 1, 2^-13, 2^-13 ...; b is 1 and 2^-12
    const int lane = threadIdx.x;
    uint32_t a[4] = {}, b[2] = {0x0c000c00, 0x0c000c00};
    if (lane / 4 == 0) a[0] = a[2] = 0x08000800;
    if (lane == 0) a[0] = 0x08003c00;
    if (lane % 4 == 0) b[0] = 0x0c003c00;
    float d[4] = {};
    mma_f16(d, a, b);
    if (lane == 0) p[0] = __float_as_int(d[0]);
  };
  int exact = 0, truncated = 0;
  {
    const InModes modes("");
    exact = result_of(1, 32, {adds})[0];
  }
  {
    const InModes modes("truncate");
    truncated = result_of(1, 32, {adds})[0];
  }
  // A product of 2^-25 is a quarter of the step after 1: added alone, it is rounded away.
  CHECK(exact == 0x3f800000);
  CHECK(truncated == 0x3f800002);  // the last eight are added to each other first
}

TEST_CASE("cuda shim modes: captures refuse calls that wait, allocate or load a kernel") {
  Device device;
  const cudaStream_t stream = device.context().stream;
  int* data = device.upload(std::vector<int>(kInts));
  void* p = nullptr;
  const auto in_capture = [&](auto call) {
    CudaGraph graph;
    cudaError_t status = cudaSuccess;
    graph.capture(stream, [&] { status = call(); });
    cudaGetLastError();
    return status;
  };
  CHECK(in_capture([&] { return cudaMalloc(&p, 4); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(in_capture([&] { return cudaFree(data); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(in_capture([&] { return cudaMallocHost(&p, 4); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(in_capture([&] { return cudaStreamSynchronize(stream); }) ==
        cudaErrorStreamCaptureUnsupported);
  const auto start = [&] {
    cudaLaunchConfig_t config{dim3(1), dim3(32), 0, stream, nullptr, 0};
    return cudaLaunchKernelEx(
        &config, +[](int* p) { p[0] = 1; }, data);
  };
  CHECK(in_capture(start) == cudaErrorStreamCaptureUnsupported);
  CHECK(start() == cudaSuccess);
  CHECK(in_capture(start) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);  // before `data` is freed
}

TEST_CASE("cuda shim modes: streams and events belong to the device that was current") {
  shim::show_devices(2);
  {
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    const CudaStream there;
    CudaEvent there_too;
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
    CudaEvent here;
    CHECK(cudaMemsetAsync(nullptr, 0, 0, there) != cudaSuccess);
    cudaGetLastError();
    CHECK_THROWS(there_too.record(there));  // the stream's device is not current
    check_cuda(cudaSetDevice(1), "cudaSetDevice");
    CHECK_THROWS(here.record(there));
    CHECK_NOTHROW(there_too.record(there));
    check_cuda(cudaSetDevice(0), "cudaSetDevice");
  }
  shim::show_devices(0);
}

#endif
