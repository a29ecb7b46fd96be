// Where a model runs: all of it on the CPU, all of it on a GPU, or the first layers here and the
// last there.
#pragma once
#include <optional>

#include "engine/passes/device_passes.h"
#include "engine/passes/engine_options.h"

namespace chaski {

// How many tokens one pass has at most. On the CPU the more there are the seldomer the weights are
// read, but their activations should stay in the L2 cache (256 tokens of 2048 channels are 0.8 MB,
// quantized). On a device every multiprocessor should have a tile of each matmul.
constexpr int kCpuBatch = 256, kDeviceBatch = 2048;

struct Placement {
  int cpu_layers = 0;  // so many run on the CPU, the first ones; all of them: there is no device
  int context = 0, max_batch = kCpuBatch;
  DeviceNeeds needs;  // empty without a device
};

// A context that nobody asked for is cut to what fits on the device, but not below this.
constexpr int kLeastContext = 4096;

// Refuses what can be refused before a model is looked at: throws Error(usage) for a --device,
// --gpu-layers or --rope-scaling that cannot be, Error(device) for a device that was asked for and
// is not there.
void check_options(const EngineOptions& options);

// Threads that work at most. Error(usage).
int thread_count(const EngineOptions& options);

// What the options make of a model: its positions are stretched, its sessions expected, and where
// it runs is settled. Only the shapes of its matrices are looked at.
//   --device auto   The device with the most free memory, with as many layers as fit. The CPU if
//                   there is no device, or none that holds a layer; a notice says why.
//   --device cuda   All layers are on the device, or as many as --gpu-layers says. Throws
//                   Error(memory), which says what is needed and what is free, if they do not fit.
// Without --ctx the context is cut (see kLeastContext) before layers are left to the CPU; a notice
// says so. Throws Error(usage) for options that do not go with the model, and what check_options()
// throws. `path` is told in errors.
Placement settle(Model& model, const EngineOptions& options, const std::string& path);

}  // namespace chaski
