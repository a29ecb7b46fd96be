#include "ggml-like-tensor/split.h"

#include <algorithm>

namespace chaski {

namespace {

bool reads_layer(const Graph& g, const Node& n, const std::string& prefix) {
  return std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) {
    const Weight* w = g.values[size_t(v)].weight;
    return w && w->info.name.starts_with(prefix);
  });
}

// What nodes from `cut` on read of what those before made.
std::vector<ValueId> crossing(const Graph& g, size_t cut) {
  std::vector<bool> made(g.values.size());
  for (size_t i = 0; i < cut; ++i)
    for (ValueId v : g.nodes[i].out) made[size_t(v)] = true;
  std::vector<ValueId> over;
  for (size_t i = cut; i < g.nodes.size(); ++i)
    for (ValueId v : g.nodes[i].in)
      if (made[size_t(v)]) over.push_back(v), made[size_t(v)] = false;
  return over;
}

// By StateId: whether an op holds it.
std::vector<bool> held(const Graph& g) {
  std::vector<bool> held(g.states.size());
  for (const Node& n : g.nodes)
    if (const StateId* s = state_of(n.op)) held[size_t(*s)] = true;
  return held;
}

void empty(State& state) {
  if (auto* s = std::get_if<Paged>(&state))
    s->heads = 0;
  else
    std::get<Recurrent>(state).bytes = 0;
}

}  // namespace

SplitGraph split(Graph whole, int layer) {
  const std::string prefix = fmt::format("layer.{}.", layer);
  size_t cut = 0;
  while (cut < whole.nodes.size() && !reads_layer(whole, whole.nodes[cut], prefix)) ++cut;
  std::vector<ValueId> over = crossing(whole, cut);
  // A norm without weights of its own is the layer's, too.
  while (cut > 0 && over.size() > 1) over = crossing(whole, --cut);
  CHECK(cut < whole.nodes.size() && over.size() == 1, "one value goes from layer to layer");

  SplitGraph parts{whole, std::move(whole)};
  parts.first.nodes.resize(cut);
  parts.first.result = parts.rest.input = over[0];
  parts.rest.nodes.erase(parts.rest.nodes.begin(), parts.rest.nodes.begin() + long(cut));
  const std::vector<bool> first = held(parts.first), rest = held(parts.rest);
  for (size_t i = 0; i < first.size(); ++i) {
    CHECK(!first[i] || !rest[i], "a state is on one side of the cut");
    if (!first[i]) empty(parts.first.states[i]);
    if (!rest[i]) empty(parts.rest.states[i]);
  }
  return parts;
}

}  // namespace chaski
