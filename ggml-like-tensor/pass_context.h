// Where a pass runs: what the CPU has of its own, or a device.
#pragma once
#include "ggml-like-tensor/state_layout.h"

namespace chaski {

struct PassContext {
  StateLayout states;  // with the addresses of the pools
  // per RopeSpec of the graph: [position][rope_dim / 2] pairs cos, sin. A device has them elsewhere
  // (cuda/table.h)
  std::vector<const float*> ropes;
};

}  // namespace chaski
