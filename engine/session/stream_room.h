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
  std::vector<StepWeights> streamed;  // in the order of a pass
  std::vector<const Weight*> kept;    // the other matrices that a pass reads whole
  uint64_t all = 0, bytes = 0;        // of the layers' matrices; of memory for them
  uint64_t a_pass = 0;                // bytes that a pass streams
};
// `context`: positions that get states. Nothing if memory holds all weights, or too few of them.
// Throws what Footprint throws, and Error(usage) if --weight-memory is too little.
std::optional<StreamRoom> stream_room(const Model& model, int context, const EngineOptions& options,
                                      int threads);

// Whether weights may be streamed: the model is mapped, has no experts and is on the CPU. Sends a
// notice if --weight-memory is given and changes nothing.
bool may_stream(const Model& model, bool mapped, bool on_cpu, const std::string& path,
                const EngineOptions& options);

}  // namespace chaski
