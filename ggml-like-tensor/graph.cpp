#include "ggml-like-tensor/graph.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <unordered_set>

namespace chaski {

ValueId Graph::weight(const Weight& w) {
  values.push_back({{w.info.rows, w.info.cols}, &w});
  return ValueId(values.size()) - 1;
}

Node& Graph::append(AnyOp op, std::vector<ValueId> in) {
  std::vector<Shape> shapes;
  for (ValueId v : in) shapes.push_back(values[v].shape);
  Node node{std::move(op), std::move(in), {}};
  std::visit(
      [&](const auto& o) {
        for (size_t i = 0; i < node.in.size(); ++i)
          ENSURE(values[node.in[i]].kind == kind_in(o, i), "an input must have the op's kind");
        for (const Shape& s : o.shapes(shapes, *batch_)) {
          values.push_back({s, nullptr, kind_out(o, node.out.size())});
          node.out.push_back(ValueId(values.size()) - 1);
        }
      },
      node.op);
  nodes.push_back(std::move(node));
  return nodes.back();
}

ValueId Graph::take_input(int64_t cols) {
  values.push_back({{batch_->size(), cols}});
  return input = ValueId(values.size()) - 1;
}
ValueId Graph::get_rows(const Weight& table, GetRows::By by) {
  return append(GetRows{by}, {weight(table)}).out[0];
}
ValueId Graph::take_outputs(ValueId x) { return append(TakeRows{}, {x}).out[0]; }
ValueId Graph::matmul(ValueId x, const Weight& w, const Weight* bias) {
  // One row is stored as a vector and not in strips.
  if (w.info.rows < 2)
    fail(Exit::bad_file, "tensor {} has {} row, expected at least 2 of a matrix", w.info.name,
         w.info.rows);
  std::vector<ValueId> in{x, weight(w)};
  if (bias) in.push_back(weight(*bias));
  return append(MatMul{1, bias != nullptr}, std::move(in)).out[0];
}
ValueId Graph::rms_norm(ValueId x, const Weight& w, float eps, int heads) {
  return append(Norm{Norm::Kind::rms, eps, false, heads}, {x, weight(w)}).out[0];
}
ValueId Graph::layer_norm(ValueId x, const Weight& w, const Weight& bias, float eps, int heads) {
  const ValueId scale = weight(w);
  return append(Norm{Norm::Kind::layer, eps, false, heads}, {x, scale, weight(bias)}).out[0];
}
ValueId Graph::rope(ValueId x, int heads, int head_dim, const RopeSpec& spec) {
  auto known = std::find(ropes.begin(), ropes.end(), spec);
  const int index = int(known - ropes.begin());
  if (known == ropes.end()) ropes.push_back(spec);
  return append(Rope{heads, head_dim, spec.dim, index}, {x}).out[0];
}
Graph::Aside Graph::set_aside(ValueId x, const Weight& numbers) {
  const auto same = [&](const Node& node) {
    if (!std::holds_alternative<SetAside>(node.op) || node.in[0] != x) return false;
    const Weight& other = *values[size_t(node.in[1])].weight;
    return other.info.cols == numbers.info.cols &&
           std::memcmp(other.data, numbers.data, numbers.info.bytes()) == 0;
  };
  const auto known = std::find_if(nodes.rbegin(), nodes.rend(), same);
  const Node& node = known != nodes.rend() ? *known : append(SetAside{}, {x, weight(numbers)});
  return {node.out[0], node.out[1]};
}
StateId Graph::state(const State& s) {
  states.push_back(s);
  return StateId(states.size()) - 1;
}
void Graph::kv_write(StateId kv, ValueId k, ValueId v, const Weight* centre, const Weight* scales) {
  std::vector<ValueId> in{k};
  if (v != kNone) in.push_back(v);
  if (centre) in.push_back(weight(*centre));
  if (scales) in.push_back(weight(*scales));
  append(KvWrite{kv,
                 std::get<Paged>(states[size_t(kv)]),
                 false,
                 {},
                 {},
                 centre != nullptr,
                 scales != nullptr},
         std::move(in));
}
ValueId Graph::attention(ValueId q, Attention op, const Weight* sinks, const Weight* key_scales) {
  op.kv = std::get<Paged>(states[size_t(op.state)]), op.source = Attention::Source::pages;
  op.scaled_keys = key_scales != nullptr;
  std::vector<ValueId> in{q};
  if (key_scales) in.push_back(weight(*key_scales));
  return append_attention(op, std::move(in), sinks);
}
ValueId Graph::attention(ValueId q, ValueId k, ValueId v, Attention op, const Weight* sinks) {
  op.state = -1, op.source = Attention::Source::batch;
  return append_attention(op, {q, k, v}, sinks);
}
ValueId Graph::append_attention(Attention op, std::vector<ValueId> in, const Weight* sinks) {
  op.heads = int(values[size_t(in[0])].shape.cols / op.kv.k_dim);
  op.sinks = sinks != nullptr;
  if (sinks) in.push_back(weight(*sinks));
  return append(op, std::move(in)).out[0];
}
ValueId Graph::attention(ValueId q, StateId kv, float scale, float soft_cap) {
  return attention(q, Attention{kv, 1, {}, scale, soft_cap});
}
ValueId Graph::lightning_index(ValueId q, ValueId weights, StateId keys, int most) {
  const Paged kv = std::get<Paged>(states[size_t(keys)]);
  const int heads = int(values[size_t(weights)].shape.cols);
  return append(LightningIndex{keys, heads, kv, most}, {q, weights}).out[0];
}
ValueId Graph::sparse_attention(ValueId q, ValueId cells, StateId kv, float scale) {
  const Paged sizes = std::get<Paged>(states[size_t(kv)]);
  const int heads = int(values[size_t(q)].shape.cols / sizes.k_dim);
  return append(SparseAttention{kv, heads, sizes, scale}, {q, cells}).out[0];
}
ValueId Graph::short_conv(ValueId x, const Weight& w, const Weight* bias, bool silu) {
  const int64_t cols = values[size_t(x)].shape.cols;
  ShortConv op{0, int(w.info.cols / cols), int(cols), bias != nullptr, silu};
  op.state = state(op.kept());
  std::vector<ValueId> in{x, weight(w)};
  if (bias) in.push_back(weight(*bias));
  return append(op, std::move(in)).out[0];
}
ValueId Graph::selective_scan(ValueId x, ValueId dt, ValueId b, ValueId c, const Weight& decays,
                              const Weight& direct) {
  SelectiveScan op{0, int(values[size_t(x)].shape.cols), int(values[size_t(b)].shape.cols)};
  op.state = state(op.kept());
  const ValueId of_states = weight(decays);
  return append(op, {x, dt, b, c, of_states, weight(direct)}).out[0];
}
ValueId Graph::state_scan(ValueId xbc, ValueId dt, StateScan op, const Weight& decays,
                          const Weight& direct) {
  op.state = state(op.kept());
  const ValueId of_heads = weight(decays);
  return append(op, {xbc, dt, of_heads, weight(direct)}).out[0];
}
ValueId Graph::state_scan(ValueId xbc, StateScan op, const Weight& decays) {
  op.timed = false;
  op.state = state(op.kept());
  return append(op, {xbc, weight(decays)}).out[0];
}
ValueId Graph::delta_rule(ValueId q, ValueId k, ValueId v, ValueId dt, ValueId beta, DeltaRule op,
                          const Weight& decays) {
  op.state = state(op.kept());
  return append(op, {q, k, v, dt, beta, weight(decays)}).out[0];
}
ValueId Graph::taylor_scan(ValueId q, ValueId k, ValueId v, TaylorScan op) {
  op.state = state(op.kept());
  return append(op, {q, k, v}).out[0];
}
ValueId Graph::wkv(std::vector<ValueId> in, Wkv op, const Weight& bonus) {
  op.state = state(op.kept());
  in.insert(in.begin() + 4, weight(bonus));
  return append(op, std::move(in)).out[0];
}
Graph::Recalled Graph::wkv7(std::vector<ValueId> in, Wkv op, const Weight& bonus) {
  op.removes = true;
  op.state = state(op.kept());
  in.insert(in.begin() + 4, weight(bonus));
  const Node& node = append(op, std::move(in));
  return {node.out[0], node.out[1]};
}

void Graph::want(Result what) {
  if (what == Result::logits) return;
  ENSURE(hidden != kNone, "only an architecture that sets `hidden` can return hidden rows");
  if (what == Result::both) return take_outputs_last();
  result = hidden;
  std::vector<bool> read(values.size());
  read[size_t(result)] = true;
  std::vector<Node> needed;  // last node first
  for (size_t i = nodes.size(); i-- > 0;) {
    Node& n = nodes[i];
    const bool is_read =
        std::any_of(n.out.begin(), n.out.end(), [&](ValueId v) { return read[size_t(v)]; });
    if (!is_read && !state_of(n.op)) continue;
    for (ValueId v : n.in) read[size_t(v)] = true;
    needed.push_back(std::move(n));
  }
  nodes.assign(std::make_move_iterator(needed.rbegin()), std::make_move_iterator(needed.rend()));
}

// Selects the output rows after the hidden rows and not before the last norm, so that there is a
// hidden row for every token.
void Graph::take_outputs_last() {
  all_hidden = hidden;
  std::vector<ValueId> is(values.size());  // the value that nodes read instead
  std::iota(is.begin(), is.end(), 0);
  std::vector<Node> all;
  bool moved = false, after_hidden = false;
  for (Node& n : nodes) {
    for (ValueId& v : n.in) v = is[size_t(v)];
    const bool makes_hidden = !n.out.empty() && n.out[0] == hidden;
    if (!after_hidden && std::holds_alternative<TakeRows>(n.op)) {
      if (makes_hidden) {
        all_hidden = n.in[0], after_hidden = true;
      } else {
        is[size_t(n.out[0])] = n.in[0], moved = true;
        continue;
      }
    }
    if (moved && !after_hidden) {
      std::vector<Shape> in;
      for (ValueId v : n.in) in.push_back(values[size_t(v)].shape);
      const std::vector<Shape> out =
          std::visit([&](const auto& op) { return op.shapes(in, *batch_); }, n.op);
      for (size_t i = 0; i < out.size(); ++i) values[size_t(n.out[i])].shape = out[i];
    }
    all.push_back(std::move(n));
    if (!makes_hidden) continue;
    if (moved && !after_hidden) {
      values.push_back({{int64_t(batch_->outputs.size()), values[size_t(hidden)].shape.cols}});
      is[size_t(hidden)] = ValueId(values.size()) - 1;
      all.push_back({TakeRows{}, {hidden}, {is[size_t(hidden)]}});
    }
    after_hidden = true;
  }
  nodes = std::move(all);
}

std::vector<const Weight*> weights_of(const Graph& graph) {
  std::vector<const Weight*> weights;
  std::unordered_set<const Weight*> seen;
  for (const Node& n : graph.nodes)
    for (ValueId v : n.in)
      if (const Weight* w = graph.values[size_t(v)].weight; w && seen.insert(w).second)
        weights.push_back(w);
  return weights;
}

std::string to_text(const Graph& graph) {
  auto value = [&](ValueId id) {
    if (id == kNone) return std::string("-");
    const GraphValue& v = graph.values[id];
    const std::string shape = fmt::format("({}, {})", v.shape.rows, v.shape.cols);
    if (v.weight)
      return fmt::format("{} {} {}", v.weight->info.name, shape, info(v.weight->info.format).name);
    const char* kind = v.kind == ValueKind::f32 ? "" : v.kind == ValueKind::i32 ? " i32" : " int8";
    return fmt::format("%{} {}{}", id, shape, kind);
  };
  std::string text;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    text += fmt::format("{} {}", i, name_of(n.op));
    for (ValueId v : n.in) text += "  " + value(v);
    if (n.in_acts != kNone) text += "  [" + value(n.in_acts) + "]";
    text += "  ->";
    for (ValueId v : n.out) text += "  " + value(v);
    if (n.acts != kNone) text += "  [" + value(n.acts) + "]";
    text += '\n';
  }
  return text;
}

}  // namespace chaski
