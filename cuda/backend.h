// The CUDA backend as the rest of chaski sees it: which devices there are, and one device that
// holds weights and KV pages, runs plans and draws tokens. No CUDA type appears here. Built without
// CUDA (cuda/absent.cpp) there are no devices, and a line that says so; built with it, the binary
// starts and runs on machines that have neither GPU nor driver.
//
// Errors: Error(device) names the call that failed; Error(memory) what is needed and what the
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
  int index = 0;  // as in --device cuda:N
  std::string name;
  size_t total_bytes = 0, free_bytes = 0;  // free: only if asked for
  int major = 0, minor = 0;                // compute capability
  int multiprocessors = 0;
};
struct CudaDevices {
  std::vector<CudaDevice> list;
  std::string why_none;  // one clause, if the list is empty: "no CUDA-capable device is detected"
};
// Devices chaski has kernels for (compute capability 8.0 and later). Asking for free memory wakes
// each of them, which takes a while.
CudaDevices cuda_devices(bool ask_free = false);

// How a token is drawn on the device: the settings of engine/sampling/sampler.h that need no
// history.
struct CudaDraw {
  double temperature = 0;  // 0: the largest logit, the smallest id among equals
  double top_p = 1, min_p = 0;
  uint64_t seed = 0;
  int top_k = 40;  // 1..kMostTopK
  int vocab = 0;   // tokens that may be drawn: logits past them are padding
};
constexpr int kMostTopK = 64;
// Whether these settings can be drawn on the device; else the logits go to the host and its
// sampler.
bool cuda_can_draw(const CudaDraw& draw);

// A plan bound to a device, made by CudaBackend::plan().
class CudaPlan {
 public:
  virtual ~CudaPlan() = default;
  virtual const Plan& plan() const = 0;
  // that a pass starts, without a draw: several steps may be one
  virtual size_t kernels() const = 0;
};

struct CudaOptions {
  int device = 0;
  int context = 0;    // positions a sequence can reach
  int max_batch = 0;  // tokens of a pass, at most
  StateLayout states;
  // Of each pool of states: pages that must be there, and as many as are wanted if they fit.
  struct Pages {
    int64_t least = 0, wanted = 0;
  };
  std::vector<Pages> pages;
  uint64_t working = 0;  // bytes left for passes: the most that cuda_working_bytes() says of them
};

// A CudaBackend would hold of these weights what a device of `device_bytes` must have free: they,
// the least of pages, room for passes, and a little for kernels and what the runtime keeps.
uint64_t cuda_bytes_needed(std::span<const Weight* const> weights, const CudaOptions& options,
                           uint64_t device_bytes);

// What passes over this graph need besides: activations, partial sums, candidates of draws, angles.
// `batch` as in Plan's constructor; `states` are the device's, their pools may be nowhere.
// Error(device) names an op or a format without a kernel. No device is touched.
uint64_t cuda_working_bytes(Graph graph, const Batch& batch, const StateLayout& states,
                            int context);

// What the device does at most in this minute. The arithmetic is that of the instructions that
// chaski's kernels are made of.
struct CudaLimits {
  double copy = 0;  // bytes read and written per second
  // operations per second: mma m16n8k32, mma m16n8k16, fma; a product and its addition are two
  double int8 = 0, f16 = 0, f32 = 0;
};

class CudaBackend {
 public:
  // Takes the device and the memory for weights and pages: Error(memory) with need and have before
  // anything is loaded, Error(device) if there is no such device. The weights, all that plans read,
  // must outlive the backend; upload() copies them.
  static std::unique_ptr<CudaBackend> open(std::vector<const Weight*> weights,
                                           const CudaOptions& options);
  virtual ~CudaBackend() = default;

  virtual const CudaDevice& device() const = 0;
  virtual uint64_t bytes_in_use() const = 0;

  // Copies every weight to the device through staging buffers, the next chunk read while the last
  // one travels; progress(bytes so far, bytes in all) may throw to stop.
  virtual void upload(const std::function<void(uint64_t, uint64_t)>& progress) = 0;

  // The pools of states. Pages are named by number; who holds which is for the caller to know.
  virtual const StateLayout& states() const = 0;                   // in device memory
  virtual const std::vector<int64_t>& pages() const = 0;           // of each pool
  virtual void copy_page(int pool, int32_t from, int32_t to) = 0;  // in order with the passes

  // Error(device) names an op or a format without a kernel. `batch` as in Plan's constructor.
  virtual std::unique_ptr<CudaPlan> plan(Graph graph, const Batch& batch) = 0;

  // Queues one pass over the contents of the plan's batch, which may change when this returns, and
  // so may `input`: what a graph that was split (split.h) is given. With `draws`, one for each
  // output, tokens are drawn as well. The second run of a plan is captured as a graph, which is
  // replayed from then on.
  virtual void run(CudaPlan& plan, std::span<const CudaDraw> draws = {},
                   const float* input = nullptr) = 0;
  // Of the last pass, valid until the next: what the graph gives out, (outputs, columns), or the
  // drawn tokens, one for each output, drawn for the position after the output's; -1 where a logit
  // is not finite. Both wait for the pass.
  virtual std::span<const float> result() = 0;
  virtual std::span<const int32_t> tokens() = 0;

  virtual CudaLimits measure_limits() = 0;

  // Seconds of each step of the last pass, and of the draw if there was one, between events, if
  // wanted; passes then wait. Steps that are one kernel have their time at its matmul.
  std::vector<double>* profile = nullptr;
};

}  // namespace chaski
