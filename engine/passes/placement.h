// Decides where a model runs: on the CPU, on a GPU, or its first layers on the CPU and its last
// ones on a GPU.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/passes/cpu_stage.h"
#include "engine/passes/cuda_stage.h"
#include "engine/passes/engine_options.h"

namespace chaski {

// The most tokens of a batch. On the CPU, larger batches read the weights less often, but their
// activations should stay in the L2 cache (256 tokens of 2048 channels are 0.8 MB, quantized). On a
// device every multiprocessor should have a tile of each matmul.
constexpr int kCpuBatch = 256, kDeviceBatch = 2048;

// What a stage is opened with.
struct StageSetup {
  const Model& model;
  const Batch& batch;
  const EngineOptions& options;
  std::shared_ptr<Crew> crew;
  int threads;  // of the crew, at most
};

// A stage of a pipeline, and the layers that it runs.
struct StagePlace {
  Layers layers;
  std::optional<DeviceNeeds> device = std::nullopt;  // empty: the CPU
  bool cpu_experts = false;                          // of a device: an ExpertStage
  // Opens a stage of another kind. Empty: a CpuStage, a CudaStage or an ExpertStage, by `device`
  // and `cpu_experts`.
  std::function<std::unique_ptr<Stage>(const StageSetup&, Layers)> other = {};
};

// Where the layers of a model run.
struct Placement {
  std::vector<StagePlace> stages;  // in the order of their layers
  int context = 0, max_batch = kCpuBatch;

  int cpu_layers() const;             // how many of the first layers run on the CPU
  const DeviceNeeds* device() const;  // null: none is used
};
std::unique_ptr<Stage> open_stage(const StagePlace& place, const StageSetup& setup);

// Without --ctx the context is reduced to what fits on the device, but not below this.
constexpr int kLeastContext = 4096;

// Checks the options that do not depend on a model. Throws Error(usage) for an invalid --device,
// --gpu-layers or --rope-scaling, and Error(device) if --device names a device that is not there.
void check_options(const EngineOptions& options);

// The most threads that work. Throws Error(usage).
int thread_count(const EngineOptions& options);

// Applies the options to a model: scales its rotary positions, prepares it for the context, and
// decides where it runs. It needs only the shapes of the model's matrices.
//   --device auto   The device with the most free memory, with as many layers as fit. The CPU if
//                   there is no device, or none that holds a layer; a notice says why.
//   --device cuda   All layers are on the device, or as many as --gpu-layers asks for. Throws
//                   Error(memory) with the needed and the free bytes if they do not fit.
//   --cpu-experts   The experts of layers on a device run on the CPU.
// Without --ctx the context is reduced (see kLeastContext) before layers move to the CPU; a notice
// says so. Throws Error(usage) for options that do not suit the model, and what check_options()
// throws. `path` is for error messages.
Placement settle(Model& model, const EngineOptions& options, const std::string& path);

// Throws Error(usage) unless EngineOptions::rank_speeds has a number for each rank.
void expect_rank_speeds(const std::vector<double>& speeds, int ranks);

// The part of this rank of options.link; null without one.
std::unique_ptr<RankShare> share_of(const EngineOptions& options);

}  // namespace chaski
