// Where a pass runs: the memory of the CPU or of a device.
#pragma once
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

struct PassContext {
  StateLayout states;  // with the addresses of the pools
  // by RopeSpec of the graph: [position][rope_dim / 2] pairs cos, sin. Devices have their own
  // (cuda/table.h)
  std::vector<const float*> ropes;
};

}  // namespace chaski
