#include "engine/session/expert_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/machine/cache_folder.h"
#include "engine/passes/layer_of.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

std::optional<ExpertRoom> expert_room(const Model& model, int cpu_layers, int context,
                                      const EngineOptions& o, int threads) {
  ExpertRoom room;
  for (const Model::BoundWeight& w : model.weights) {
    if (w.role != Role::experts || layer_of(w.weight->info.name) >= cpu_layers) continue;
    room.weights.push_back({w.weight, w.experts});
    room.all += w.weight->info.bytes();
    room.a_token += w.weight->info.bytes() / uint64_t(w.experts) * uint64_t(w.chosen);
  }
  if (room.weights.empty()) return std::nullopt;
  const Footprint need(model, cpu_layers, o.kv, threads);
  const uint64_t free = available_pages().value_or(UINT64_MAX), have = promised(free),
                 asked = o.expert_memory > 0 ? o.expert_memory : UINT64_MAX,
                 others =
                     need.weights() - room.all + need.states(context) + need.activations(context);
  if (asked >= room.all && room.all <= have && others <= have - room.all) return std::nullopt;
  const uint64_t safe = std::min(free - free / 16, have);
  room.bytes = std::min({asked, room.all, safe - std::min(safe, others)});
  room.over = others - std::min(others, safe);
  return room;
}

void expect_expert_memory(const EngineOptions& o, const std::vector<ExpertWeight>& weights,
                          int threads) {
  const uint64_t least = least_bytes(weights, threads);
  if (o.expert_memory > 0 && o.expert_memory < least)
    fail(Exit::usage, "--expert-memory is {} bytes, expected at least {} for {} threads",
         o.expert_memory, least, threads);
}

bool uses_expert_memory(const Model& model, bool mapped, bool on_cpu, const std::string& path,
                        const EngineOptions& o) {
  const bool any = std::ranges::any_of(
      model.weights, [](const Model::BoundWeight& w) { return w.role == Role::experts; });
  if (any && mapped && on_cpu) return true;
  if (o.expert_memory > 0 && o.notice)
    o.notice(fmt::format("{}: --expert-memory is not used: {}", path,
                         !any                        ? "the model has no experts"
                         : !on_cpu && !o.cpu_experts ? "all layers are on the device"
                         : !mapped ? "the weights are in memory, not mapped from a .quipu file"
                                   : "--cpu-experts reads the experts as mapped"));
  return false;
}

ExpertUses kept_expert_uses(const std::string& path, const std::string& state) {
  const std::string place = kept_name("expert-uses", path),
                    text = place.empty() ? "" : kept_text(place);
  return text.starts_with(state) ? uses_of(text.substr(state.size())) : ExpertUses{};
}

void keep_expert_uses(const std::string& path, const std::string& state, const ExpertUses& uses) {
  if (const std::string place = kept_name("expert-uses", path); !place.empty())
    keep_text(place, state + text_of_uses(uses));
}

}  // namespace chaski
