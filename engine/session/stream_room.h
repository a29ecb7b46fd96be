// The memory for the weights of a mapped model that is larger than memory and has no experts
// (weight_stream.h): which weights stay in memory, and which are read for every pass.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/session/memory_need.h"
#include "ggml-like-tensor/weight_stream.h"

namespace chaski {

struct StreamRoom {
  std::vector<StepWeights> streamed;  // in the order of a pass; empty if not even the ring fits
  std::vector<const Weight*> kept;    // not streamed, read whole by a pass: stay in memory
  uint64_t a_pass = 0;                // bytes that a pass streams
  uint64_t bytes = 0, least = 0;      // of memory for the layers' matrices; that they need
  uint64_t over = 0;  // bytes by which other weights, states and activations exceed memory
};
// `context`: positions that get states. Returns nothing if all weights fit into memory. Throws what
// Footprint throws, and Error(usage) if --weight-memory is too little.
std::optional<StreamRoom> stream_room(const Model& model, int context, const EngineOptions& options,
                                      int threads);

// Whether weights may be streamed: the model is mapped, has no experts and is on the CPU. Sends a
// notice if --weight-memory is given and changes nothing.
bool may_stream(const Model& model, bool mapped, bool on_cpu, const std::string& path,
                const EngineOptions& options);

}  // namespace chaski
