// Where a model runs: all of it on the CPU, all of it on a GPU, or the first layers here and the
// last there.
#pragma once
#include <optional>

#include "engine/device_passes.h"
#include "engine/engine.h"

namespace chaski {

// Tokens of a pass, at most. Here: enough for the weights to be read seldom, few enough for the
// activations to stay in L2 (256 tokens x 2048 channels are 0.8 MB quantized). On a device: enough
// for every multiprocessor to have a tile of each matmul.
constexpr int kCpuBatch = 256, kDeviceBatch = 2048;

struct Placement {
  int cpu_layers = 0;  // the first so many; all: no device
  int context = 0, max_batch = kCpuBatch;
  DeviceShare share;  // if there is a device
};

// What --device and --gpu-layers mean:
//   auto   the device with the most free memory, as many layers as fit; the CPU if there is none,
//          with a notice that says why
//   cuda   all layers, or as many as --gpu-layers says: Error(memory) with need and have if they do
//          not fit, Error(device) without a device
// Without --ctx, a context that is too long for all layers is cut to what fits, but not below
// kLeastContext, with a notice. Error(usage) for a device or a number of layers that there cannot
// be.
constexpr int kLeastContext = 4096;
// What can be said before a model is loaded: Error(usage), Error(device).
void check_device(const EngineOptions& options);
Placement place(const Model& model, const EngineOptions& options);

}  // namespace chaski
