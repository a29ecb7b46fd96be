#include "ggml-like-tensor/split.h"

#include <algorithm>
#include <set>

namespace chaski {

namespace {

bool reads_layer(const Graph& g, const Node& n, const std::string& prefix) {
  return std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) {
    const Weight* w = g.values[size_t(v)].weight;
    return w && w->info.name.starts_with(prefix);
  });
}

// The values made before node `cut` that nodes from `cut` on read.
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

// By StateId: whether one of these nodes uses the state.
std::vector<bool> held(const Graph& g, size_t from, size_t to) {
  std::vector<bool> held(g.states.size());
  for (size_t i = from; i < to; ++i)
    if (const StateId* s = state_of(g.nodes[i].op)) held[size_t(*s)] = true;
  return held;
}

// The index of the second part's first node, and the values that cross the cut.
struct Cut {
  size_t at = 0;
  std::vector<ValueId> over;
};
Cut cut_of(const Graph& whole, int layer) {
  const std::string prefix = fmt::format("layer.{}.", layer);
  Cut cut;
  while (cut.at < whole.nodes.size() && !reads_layer(whole, whole.nodes[cut.at], prefix)) ++cut.at;
  cut.over = crossing(whole, cut.at);
  // A norm without weights just before the layer's first weight belongs to the layer too.
  while (cut.at > 0 && cut.over.size() > 1 &&
         !reads_layer(whole, whole.nodes[cut.at - 1], "layer."))
    cut.over = crossing(whole, --cut.at);
  return cut;
}

// Whether nodes from `cut` on read a weight of a layer before it, as layers that run again do.
bool looks_back(const Graph& g, size_t cut) {
  std::set<const Weight*> before;
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (ValueId v : g.nodes[i].in) {
      const Weight* w = g.values[size_t(v)].weight;
      if (!w || !w->info.name.starts_with("layer.")) continue;
      if (i < cut)
        before.insert(w);
      else if (before.contains(w))
        return true;
    }
  return false;
}

void empty(State& state) {
  if (auto* s = std::get_if<Paged>(&state))
    s->heads = 0;
  else
    std::get<Recurrent>(state).bytes = 0;
}

}  // namespace

bool can_split(const Graph& whole, int layer) {
  const Cut cut = cut_of(whole, layer);
  const std::vector<bool> first = held(whole, 0, cut.at),
                          rest = held(whole, cut.at, whole.nodes.size());
  bool shared = false;
  for (size_t i = 0; i < first.size(); ++i) shared |= first[i] && rest[i];
  return cut.at < whole.nodes.size() && cut.over.size() == 1 && !shared &&
         !looks_back(whole, cut.at);
}

ValueId crossing_value(const Graph& whole, int layer) {
  const Cut cut = cut_of(whole, layer);
  return cut.over.size() == 1 ? cut.over[0] : kNone;
}

SplitGraph split(Graph whole, int layer) {
  ENSURE(can_split(whole, layer), "one value must cross the cut, and no state be on both sides");
  const Cut cut = cut_of(whole, layer);
  SplitGraph parts{whole, std::move(whole)};
  parts.first.nodes.resize(cut.at);
  parts.first.result = parts.rest.input = cut.over[0];
  parts.first.hidden = parts.first.all_hidden = kNone;
  parts.rest.nodes.erase(parts.rest.nodes.begin(), parts.rest.nodes.begin() + long(cut.at));
  const std::vector<bool> first = held(parts.first, 0, parts.first.nodes.size());
  for (size_t i = 0; i < first.size(); ++i) empty((first[i] ? parts.rest : parts.first).states[i]);
  return parts;
}

std::vector<Graph> around_experts(const Graph& whole) {
  const size_t n = whole.nodes.size();
  std::vector<size_t> cuts{0};
  std::vector<ValueId> over{whole.input};
  const auto cut_at = [&](size_t node) {
    cuts.push_back(node), over.push_back(crossing(whole, node)[0]);
  };
  const auto crosses_alone = [&](size_t node) { return crossing(whole, node).size() == 1; };
  for (size_t i = 0; i < n; ++i) {
    if (!std::holds_alternative<ExpertMatMul>(whole.nodes[i].op)) continue;
    size_t from = i, to = i + 1;
    while (from > cuts.back() && !crosses_alone(from)) --from;
    while (to < n && !crosses_alone(to)) ++to;
    const std::vector<bool> states = held(whole, from, to);
    if (from == cuts.back() || to == n || std::count(states.begin(), states.end(), true) > 0)
      return {};
    cut_at(from), cut_at(to);
    i = to - 1;
  }
  std::vector<Graph> parts;
  for (size_t k = 0; k < cuts.size(); ++k) {
    Graph& part = parts.emplace_back(whole);
    const bool last = k + 1 == cuts.size();
    part.nodes.resize(last ? n : cuts[k + 1]);
    part.nodes.erase(part.nodes.begin(), part.nodes.begin() + long(cuts[k]));
    part.input = over[k];
    if (!last) part.result = over[k + 1], part.hidden = part.all_hidden = kNone;
  }
  return parts;
}

}  // namespace chaski
