// The CUDA backend as the rest of chaski sees it: the list of devices, and one device that holds
// weights and KV pages, runs plans and draws tokens. No CUDA type appears here. A build without
// CUDA (cuda/absent.cpp) has no devices and a message that says so. A build with CUDA also starts
// and runs on machines without a GPU or driver.
//
// Errors: Error(device) names the call that failed. Error(memory) says what is needed and what the
// device has.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/plan.h"

namespace chaski {

struct CudaDevice {
  int index = 0;  // N of --device cuda:N
  std::string name;
  size_t total_bytes = 0, free_bytes = 0;  // filled only if asked for
  int major = 0, minor = 0;                // compute capability
  int multiprocessors = 0;
  size_t shared_limit = 0;  // shared memory of a block, at most
};
struct CudaDevices {
  std::vector<CudaDevice> list;
  std::string why_none;  // one clause if the list is empty: "no CUDA-capable device is detected"
};
// Lists the devices that chaski has kernels for (compute capability 8.0 and later). Asking for free
// memory initializes each device, which takes a while and some hundred megabytes of it. Afterwards,
// only devices with an open CudaBackend and the one with the most free memory remain initialized.
CudaDevices cuda_devices(bool ask_free = false);

// How a token is drawn on the device: those settings of engine/sampling/sampler.h that need no
// earlier tokens.
struct CudaDraw {
  double temperature = 0;  // 0: take the largest logit; of equal ones the smallest id
  double top_p = 1, min_p = 0;
  uint64_t seed = 0;
  int top_k = 40;  // 1..kMostTopK
  int vocab = 0;   // number of tokens that may be drawn; further logits are padding
};
constexpr int kMostTopK = 64;
// Whether these settings can be drawn on the device. If not, the logits are copied to the host and
// its sampler draws.
bool cuda_can_draw(const CudaDraw& draw);

// A plan bound to a device, made by CudaBackend::plan().
class CudaPlan {
 public:
  virtual ~CudaPlan() = default;
  virtual const Plan& plan() const = 0;
  // kernels that a pass starts, without a draw; one kernel may run several steps
  virtual size_t kernels() const = 0;
};

// Up to this number of tokens a pass splits contexts over the device, which takes more memory.
constexpr int kCudaSplitTokens = 32;

struct CudaOptions {
  int device = 0;
  size_t shared_limit = 0;  // the device's
  int context = 0;          // positions a sequence can have, at most
  int max_batch = 0;        // tokens of a pass, at most
  StateLayout states;
  // For each pool of states: the pages that are required, and the pages that are wanted if they
  // fit.
  struct Pages {
    int64_t least = 0, wanted = 0;
  };
  std::vector<Pages> pages;
  uint64_t working = 0;  // bytes kept free for passes: CudaWorking::bytes()
};

// Bytes that must be free on a device of `device_bytes` before a CudaBackend can open these
// weights: the weights, the required pages, room for passes, and a little for kernels and the CUDA
// runtime.
uint64_t cuda_bytes_needed(std::span<const Weight* const> weights, const CudaOptions& options,
                           uint64_t device_bytes);

// The further bytes that passes need: activations, partial sums, candidates of draws, angles. Each
// kind is allocated for the pass that needs the most of it, and stays. Does not use a device.
class CudaWorking {
 public:
  CudaWorking(int context, size_t shared_limit) : context_(context), shared_limit_(shared_limit) {}
  // Adds passes over this graph. `batch` is as in Plan's constructor. `states` is the layout on the
  // device; its pools may have no addresses. Throws Error(device) for an op or format without a
  // kernel.
  void add(Graph graph, const Batch& batch, const StateLayout& states);
  uint64_t bytes() const;

 private:
  int context_;
  size_t shared_limit_;
  uint64_t arena_ = 0, draw_ = 0, scratch_[Ops::kCount] = {};
  std::vector<RopeSpec> ropes_;
};

// Measured limits of the device at this moment. The arithmetic uses the instructions of chaski's
// kernels.
struct CudaLimits {
  double copy = 0;  // bytes read and written per second
  // operations per second of mma m16n8k32, mma m16n8k16 and fma; a multiply-add counts as two
  double int8 = 0, f16 = 0, f32 = 0;
};

class CudaBackend {
 public:
  // Takes the device and the memory for weights and pages. Throws Error(memory) with the needed and
  // the available bytes before anything is loaded; Error(device) if there is no such device.
  // `weights` are all weights that plans read; they must outlive the backend. upload() copies them.
  static std::unique_ptr<CudaBackend> open(std::vector<const Weight*> weights,
                                           const CudaOptions& options);
  virtual ~CudaBackend() = default;

  virtual const CudaDevice& device() const = 0;
  virtual uint64_t bytes_in_use() const = 0;

  // Copies every weight to the device through staging buffers; the next chunk is read while the
  // last one is copied. progress(bytes so far, bytes in all) may throw to stop.
  virtual void upload(const std::function<void(uint64_t, uint64_t)>& progress) = 0;

  // The pools of states. Pages are numbered; the caller keeps track of which sequence uses which
  // page.
  virtual const StateLayout& states() const = 0;          // addresses are in device memory
  virtual const std::vector<int64_t>& pages() const = 0;  // pages of each pool
  virtual void copy_page(int pool, int32_t from,
                         int32_t to) = 0;  // in stream order with the passes

  // Throws Error(device) for an op or format without a kernel. `batch` is as in Plan's constructor.
  virtual std::unique_ptr<CudaPlan> plan(Graph graph, const Batch& batch) = 0;

  // Queues one pass over the contents of the plan's batch. Batch and `input` may change when this
  // returns. `input` is the input of a graph that was split (split.h). With `draws`, one for each
  // output, the pass also draws tokens. The second run of a plan is captured as a CUDA graph; later
  // runs replay it.
  virtual void run(CudaPlan& plan, std::span<const CudaDraw> draws = {},
                   const float* input = nullptr) = 0;
  // Results of the last pass, valid until the next pass. Both calls wait for the pass. result():
  // the graph's result, (outputs, columns). tokens(): one drawn token for each output, for the
  // position after the output's position; -1 if a logit is not finite.
  virtual std::span<const float> result() = 0;
  virtual std::span<const int32_t> tokens() = 0;

  virtual CudaLimits measure_limits() = 0;

  // If set, receives the seconds of each step of the last pass, and of the draw if there was one,
  // measured between events. Each pass then waits for its end. Steps that run as one kernel have
  // their time at the matmul's step.
  std::vector<double>* profile = nullptr;
};

}  // namespace chaski
