#include "ggml-like-tensor/graph.h"

#include <algorithm>
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
  for (const Shape& s :
       std::visit([&](const auto& o) { return o.shapes(shapes, *batch_); }, node.op)) {
    values.push_back({s});
    node.out.push_back(ValueId(values.size()) - 1);
  }
  nodes.push_back(std::move(node));
  return nodes.back();
}

ValueId Graph::get_rows(const Weight& table, GetRows::By by) {
  return append(GetRows{by}, {weight(table)}).out[0];
}
ValueId Graph::take_outputs(ValueId x) { return append(TakeRows{}, {x}).out[0]; }
ValueId Graph::matmul(ValueId x, const Weight& w, const Weight* bias) {
  std::vector<ValueId> in{x, weight(w)};
  if (bias) in.push_back(weight(*bias));
  return append(MatMul{1, bias != nullptr}, std::move(in)).out[0];
}
ValueId Graph::rms_norm(ValueId x, const Weight& w, float eps) {
  return append(Norm{Norm::Kind::rms, eps, false}, {x, weight(w)}).out[0];
}
ValueId Graph::layer_norm(ValueId x, const Weight& w, const Weight& bias, float eps) {
  const ValueId scale = weight(w);
  return append(Norm{Norm::Kind::layer, eps, false}, {x, scale, weight(bias)}).out[0];
}
ValueId Graph::rope(ValueId x, int heads, int head_dim, const RopeSpec& spec) {
  auto known = std::find(ropes.begin(), ropes.end(), spec);
  const int index = int(known - ropes.begin());
  if (known == ropes.end()) ropes.push_back(spec);
  return append(Rope{heads, head_dim, spec.dim, index}, {x}).out[0];
}
StateId Graph::state(const State& s) {
  states.push_back(s);
  return StateId(states.size()) - 1;
}
void Graph::kv_write(StateId kv, ValueId k, ValueId v) {
  append(KvWrite{kv, std::get<Paged>(states[size_t(kv)]), false, {}, {}}, {k, v});
}
ValueId Graph::attention(ValueId q, StateId kv, float scale, float soft_cap) {
  const Paged& s = std::get<Paged>(states[size_t(kv)]);
  return append(Attention{kv, int(values[size_t(q)].shape.cols / s.k_dim), s, scale, soft_cap}, {q})
      .out[0];
}
ValueId Graph::short_conv(ValueId x, const Weight& w) {
  const int64_t cols = values[size_t(x)].shape.cols;
  ShortConv op{0, int(w.info.cols / cols), int(cols)};
  op.state = state(op.kept());
  return append(op, {x, weight(w)}).out[0];
}
ValueId Graph::add(ValueId a, ValueId b) {
  return append(Binary{Binary::Kind::add}, {a, b}).out[0];
}
ValueId Graph::mul(ValueId a, ValueId b) {
  return append(Binary{Binary::Kind::mul}, {a, b}).out[0];
}
ValueId Graph::silu(ValueId x) { return append(Unary{Activation::silu}, {x}).out[0]; }
ValueId Graph::gelu(ValueId x) { return append(Unary{Activation::gelu}, {x}).out[0]; }
ValueId Graph::soft_max(ValueId x, float scale) { return append(SoftMax{scale}, {x}).out[0]; }

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
    return fmt::format("%{} {}{}", id, shape, v.acts ? " int8" : "");
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
