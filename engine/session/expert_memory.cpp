#include "engine/session/expert_memory.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>

#include "engine/machine/cache_folder.h"
#include "engine/passes/layer_of.h"
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
  const uint64_t have = available_pages().value_or(UINT64_MAX),
                 asked = o.expert_memory > 0 ? o.expert_memory : UINT64_MAX,
                 others =
                     need.weights() - room.all + need.states(context) + need.activations(context);
  if (asked >= room.all && room.all <= have && others <= have - room.all) return std::nullopt;
  const uint64_t safe = have - have / 16;
  room.bytes = std::min({asked, room.all, safe - std::min(safe, others)});
  return room;
}

namespace {

// The name of a file's text in the cache folder; empty if there is no cache folder.
std::string place_of(const std::string& path) {
  std::error_code none;
  const std::string whole = std::filesystem::canonical(path, none);
  if (none || cache_folder().empty()) return "";
  return fmt::format("experts/{:016x}", XXH3_64bits(whole.data(), whole.size()));
}

}  // namespace

ExpertUses kept_expert_uses(const std::string& path, const std::string& state) {
  const std::string place = place_of(path), text = place.empty() ? "" : kept_text(place);
  return text.starts_with(state) ? uses_of(text.substr(state.size())) : ExpertUses{};
}

void keep_expert_uses(const std::string& path, const std::string& state, const ExpertUses& uses) {
  if (const std::string place = place_of(path); !place.empty())
    keep_text(place, state + text_of_uses(uses));
}

}  // namespace chaski
