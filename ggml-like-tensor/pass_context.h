// Where a pass runs: the memory of the CPU or of a device.
#pragma once
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

class ExpertCache;

struct PassContext {
  StateLayout states;  // with the addresses of the pools
  // by RopeSpec of the graph: [position][rope_dim / 2] pairs cos, sin. Devices have their own
  // (cuda/table.h)
  std::vector<const float*> ropes;
  ExpertCache* experts = nullptr;  // of a model that is larger than memory
};

}  // namespace chaski
