#include "engine/session/stream_room.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/passes/layer_of.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

namespace {

bool is_matrix(const Weight& w) { return w.info.tiled() && w.info.rows > 1; }

// The matrices of layers, step by step of a decode step. Those that several steps read are left
// out: they stay in memory.
std::vector<StepWeights> steps_of(const Model& model, Format kv) {
  const ImaginedPass pass(model, int(model.n_layers), kv, 0, 1, 1);
  const Graph& graph = pass.plan().graph();
  std::map<const Weight*, int> readers;
  std::vector<StepWeights> steps;
  for (const Node& node : graph.nodes) {
    StepWeights read;
    for (const ValueId v : node.in)
      if (const Weight* w = graph.values[size_t(v)].weight;
          w && is_matrix(*w) && layer_of(w->info.name) >= 0 && readers[w]++ == 0)
        read.push_back(w);
    if (!read.empty()) steps.push_back(std::move(read));
  }
  for (StepWeights& s : steps) std::erase_if(s, [&](const Weight* w) { return readers[w] > 1; });
  std::erase_if(steps, [](const StepWeights& s) { return s.empty(); });
  return steps;
}

// All matrices but the streamed ones. Of a token table that is not the output head too, a pass
// reads only some rows.
std::vector<const Weight*> kept_of(const Model& model, const std::vector<StepWeights>& streamed) {
  std::set<const Weight*> others;
  for (const StepWeights& s : streamed) others.insert(s.begin(), s.end());
  const bool head = has_head(model);
  std::vector<const Weight*> kept;
  for (const Model::BoundWeight& w : model.weights)
    if (is_matrix(*w.weight) && !others.contains(w.weight) &&
        (w.role != Role::token_table || !head))
      kept.push_back(w.weight);
  return kept;
}

}  // namespace

std::optional<StreamRoom> stream_room(const Model& model, int context, const EngineOptions& o,
                                      int threads) {
  StreamRoom room;
  const std::vector<StepWeights> steps = steps_of(model, o.kv);
  uint64_t all = 0;
  for (const StepWeights& s : steps) all += bytes_of(s);
  const Footprint need(model, int(model.n_layers), o.kv, threads);
  const uint64_t free = available_pages().value_or(UINT64_MAX), have = promised(free),
                 others = need.weights() - all + need.states(context) + need.activations(context),
                 safe = std::min(free - free / 16, have), left = safe - std::min(safe, others);
  if (o.weight_memory == 0 && others <= have && all <= have - others) return std::nullopt;
  room.least = ring_bytes(steps), room.over = others - std::min(others, safe);
  if (o.weight_memory > 0 && o.weight_memory < room.least)
    fail(Exit::usage, "--weight-memory is {} bytes, expected at least {}", o.weight_memory,
         room.least);
  room.bytes = std::min({all, left, o.weight_memory > 0 ? o.weight_memory : UINT64_MAX});
  if (room.bytes >= all) return std::nullopt;
  const std::vector<bool> streamed = streamed_within(steps, room.bytes);
  for (size_t i = 0; i < streamed.size(); ++i)
    if (streamed[i]) room.streamed.push_back(steps[i]), room.a_pass += bytes_of(steps[i]);
  room.kept = kept_of(model, room.streamed);
  return room;
}

bool may_stream(const Model& model, bool mapped, bool on_cpu, const std::string& path,
                const EngineOptions& o) {
  const bool experts = std::ranges::any_of(
      model.weights, [](const Model::BoundWeight& w) { return w.role == Role::experts; });
  if (!experts && mapped && on_cpu) return true;
  if (o.weight_memory > 0 && o.notice)
    o.notice(fmt::format("{}: --weight-memory is not used: {}", path,
                         experts   ? "the model has experts, for which there is --expert-memory"
                         : !on_cpu ? "layers are on the device"
                                   : "the weights are in memory, not mapped from a .quipu file"));
  return false;
}

}  // namespace chaski
