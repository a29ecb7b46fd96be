// The memory for experts of a mapped model that is larger than memory (expert_cache.h): how much
// there is, and what earlier runs learned about the use of the experts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "engine/session/memory_need.h"
#include "ggml-like-tensor/expert_cache.h"

namespace chaski {

struct ExpertRoom {
  std::vector<ExpertWeight> weights;  // of the layers on the CPU
  uint64_t all = 0, a_token = 0;      // bytes of all experts, and of those that a token chooses
  uint64_t bytes = 0;                 // of memory for them
  uint64_t over = 0;  // bytes by which other weights, states and activations exceed memory
};
// `context`: positions that get states. Nothing if the model has no experts or memory holds them
// all. Throws what Footprint throws.
std::optional<ExpertRoom> expert_room(const Model& model, int cpu_layers, int context,
                                      const EngineOptions& options, int threads);

// Throws Error(usage) if --expert-memory is too little for experts of these weights.
void expect_expert_memory(const EngineOptions& options, const std::vector<ExpertWeight>& weights,
                          int threads);
// Sends a notice if --expert-memory is given and changes nothing: the model at `path` has no
// experts, is not mapped, or has no layers that are wholly on the CPU. Returns true if there may be
// a cache of experts. It is still not needed if memory holds them all.
bool uses_expert_memory(const Model& model, bool mapped, bool on_cpu, const std::string& path,
                        const EngineOptions& options);

// Stored in the cache folder. Empty for a file that has changed since.
ExpertUses kept_expert_uses(const std::string& path, const std::string& state);
void keep_expert_uses(const std::string& path, const std::string& state, const ExpertUses& uses);

}  // namespace chaski
