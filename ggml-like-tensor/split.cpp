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

}  // namespace

SplitGraph split(Graph whole, int layer) {
  const std::string prefix = fmt::format("layer.{}.", layer);
  size_t cut = 0;
  while (cut < whole.nodes.size() && !reads_layer(whole, whole.nodes[cut], prefix)) ++cut;
  const std::vector<ValueId> over = crossing(whole, cut);
  CHECK(cut < whole.nodes.size() && over.size() == 1, "one value goes from layer to layer");

  SplitGraph parts{whole, std::move(whole)};
  parts.first.nodes.resize(cut);
  parts.first.result = parts.rest.input = over[0];
  parts.rest.nodes.erase(parts.rest.nodes.begin(), parts.rest.nodes.begin() + long(cut));
  for (Node& n : parts.rest.nodes) {
    if (auto* write = std::get_if<KvWrite>(&n.op)) write->layer -= layer;
    if (auto* attention = std::get_if<Attention>(&n.op)) attention->layer -= layer;
  }
  return parts;
}

}  // namespace chaski
