#include "ggml-like-tensor/fuse.h"

#include <algorithm>
#include <map>

namespace chaski {

namespace {

template <class Op>
Op* as(Node& node) {
  return std::get_if<Op>(&node.op);
}

// A fused node takes the place of its last part. The other parts are marked and removed together at
// the end of their rewrite, so that a pass over n nodes takes n steps.
class Fuser {
 public:
  explicit Fuser(Graph& graph) : g_(graph) {}

  void run(Fuse which) {
    if (which == Fuse::all)
      for (auto pass :
           {&Fuser::gate, &Fuser::gate_experts, &Fuser::share, &Fuser::add_norm, &Fuser::rotate})
        rewrite(pass);
    quantize(which);
  }

 private:
  void rewrite(void (Fuser::*pass)()) {
    index();
    (this->*pass)();
    size_t kept = 0;
    for (size_t i = 0; i < g_.nodes.size(); ++i)
      if (!removed_[i]) {
        if (kept != i) g_.nodes[kept] = std::move(g_.nodes[i]);
        ++kept;
      }
    g_.nodes.resize(kept);
  }
  void index() {
    uses_.assign(g_.values.size(), 0), producer_.assign(g_.values.size(), nullptr);
    removed_.assign(g_.nodes.size(), false);
    for (Node& node : g_.nodes) {
      for (ValueId v : node.in) ++uses_[size_t(v)];
      for (ValueId v : node.out) producer_[size_t(v)] = &node;
    }
    for (ValueId v : {g_.result, g_.all_hidden})
      if (v != kNone) ++uses_[size_t(v)];
  }
  // The producer of v, if it is an Op and v has only one reader.
  template <class Op>
  Node* sole_producer(ValueId v) {
    Node* node = producer_[size_t(v)];
    return node && as<Op>(*node) && uses_[size_t(v)] == 1 ? node : nullptr;
  }
  void read(Node& node, std::vector<ValueId> in) {
    for (ValueId v : node.in) --uses_[size_t(v)];
    node.in = std::move(in);
    for (ValueId v : node.in) ++uses_[size_t(v)];
  }
  void erase(Node& node) {
    read(node, {});
    removed_[size_t(&node - g_.nodes.data())] = true;
  }
  bool plain_matmul(Node* n) { return n && as<MatMul>(*n)->weights == 1 && !as<MatMul>(*n)->bias; }

  void gate() {
    for (Node& mul : g_.nodes) {
      if (!as<Binary>(mul) || as<Binary>(mul)->kind != Binary::Kind::mul) continue;
      Node *act = sole_producer<Unary>(mul.in[0]), *up = sole_producer<MatMul>(mul.in[1]);
      Node* gate = act ? sole_producer<MatMul>(act->in[0]) : nullptr;
      if (!plain_matmul(gate) || !plain_matmul(up) || gate->in[0] != up->in[0]) continue;
      read(mul, {gate->in[0], gate->in[1], up->in[1]});
      mul.op = GatedMatMul{as<Unary>(*act)->kind};
      for (Node* part : {gate, act, up}) erase(*part);
    }
  }

  // Gate and up must have one format: a device has no kernel for two.
  void gate_experts() {
    const auto weight = [&](const Node& matmul) { return g_.values[size_t(matmul.in[1])].weight; };
    for (Node& node : g_.nodes) {
      if (!as<Binary>(node) || as<Binary>(node)->kind == Binary::Kind::add) continue;
      const bool clamped = as<Binary>(node)->kind == Binary::Kind::clamped_swiglu;
      Node *act = clamped ? nullptr : sole_producer<Unary>(node.in[0]),
           *up = sole_producer<ExpertMatMul>(node.in[1]);
      Node* gate = clamped ? sole_producer<ExpertMatMul>(node.in[0])
                   : act   ? sole_producer<ExpertMatMul>(act->in[0])
                           : nullptr;
      if (!gate || !up || gate->in.size() != up->in.size()) continue;
      if (gate->in[0] != up->in[0] || gate->in[2] != up->in[2]) continue;
      if (weight(*gate)->info.format != weight(*up)->info.format) continue;
      const ExpertMatMul plain = *as<ExpertMatMul>(*gate);
      std::vector<ValueId> in{gate->in[0], gate->in[1], up->in[1], gate->in[2]};
      if (plain.bias) in.insert(in.end(), {gate->in[3], up->in[3]});
      read(node, std::move(in));
      node.op = GatedExpertMatMul{plain.experts, act ? as<Unary>(*act)->kind : Activation::silu,
                                  clamped, plain.bias};
      for (Node* part : {gate, act, up})
        if (part) erase(*part);
    }
  }

  void share() {
    // The last matmul that reads an x, with bias or without.
    std::map<std::pair<ValueId, bool>, Node*> open;
    for (Node& b : g_.nodes) {
      MatMul* other = as<MatMul>(b);
      if (!other || other->weights != 1) continue;
      Node*& a = open[{b.in[0], other->bias}];
      MatMul* first = a ? as<MatMul>(*a) : nullptr;
      if (!first || first->weights == 3) {
        a = &b;
        continue;
      }
      std::vector<ValueId> in = a->in;
      in.insert(in.begin() + 1 + first->weights, b.in[1]);
      if (first->bias) in.push_back(b.in[2]);
      read(*a, std::move(in));
      a->out.push_back(b.out[0]);
      ++first->weights;
      erase(b);
    }
  }

  void add_norm() {
    for (size_t i = 1; i < g_.nodes.size(); ++i) {
      Node &norm = g_.nodes[i], &add = g_.nodes[i - 1];
      if (!as<Norm>(norm) || !as<Binary>(add) || as<Binary>(add)->kind != Binary::Kind::add ||
          add.out[0] != norm.in[0])
        continue;
      std::vector<ValueId> in = add.in;
      in.insert(in.end(), norm.in.begin() + 1, norm.in.end());
      read(norm, std::move(in));
      norm.out.push_back(add.out[0]);
      as<Norm>(norm)->adds = true;
      erase(add);
    }
  }

  // The query must belong to the next attention, over the same keys.
  void rotate() {
    Node* attention = nullptr;  // the next one after the current node
    for (size_t i = g_.nodes.size(); i-- > 0;) {
      Node& write = g_.nodes[i];
      if (as<Attention>(write)) attention = &write;
      if (!as<KvWrite>(write) || !attention) continue;
      KvWrite& op = *as<KvWrite>(write);
      if (op.kv.v_inside_k) continue;
      Node *k = sole_producer<Rope>(write.in[0]), *q = sole_producer<Rope>(attention->in[0]);
      if (!k || !q || as<Attention>(*attention)->state != op.state || q > &write) continue;
      if (as<Rope>(*q)->spec != as<Rope>(*k)->spec) continue;
      std::vector<ValueId> in{k->in[0], write.in[1], q->in[0]};
      in.insert(in.end(), write.in.begin() + 2, write.in.end());  // centre and scales
      op.rope = true, op.q = *as<Rope>(*q), op.k = *as<Rope>(*k);
      read(write, std::move(in));
      write.out = {q->out[0]};
      erase(*k), erase(*q);
    }
  }

  bool can_quantize(const Node& n) const {
    return std::visit([](const auto& op) { return can_leave_acts(op); }, n.op);
  }

  void quantize(Fuse which) {
    std::vector<ValueId> quantized(g_.values.size(), kNone);
    std::vector<size_t> made_by(g_.values.size(), SIZE_MAX);  // index among the nodes so far
    std::vector<Node> nodes;
    nodes.reserve(g_.nodes.size() + g_.nodes.size() / 2);
    for (Node& node : g_.nodes) {
      if (reads_quantized(node)) {
        const auto x = size_t(node.in[0]);
        if (quantized[x] == kNone) {
          quantized[x] = ValueId(g_.values.size());
          g_.values.push_back({g_.values[x].shape, nullptr, ValueKind::acts});
          Node* from = made_by[x] == SIZE_MAX ? nullptr : &nodes[made_by[x]];
          if (which == Fuse::all && from && can_quantize(*from) && from->out[0] == ValueId(x))
            from->acts = quantized[x];
          else
            nodes.push_back(Node{QuantizeActs{}, {ValueId(x)}, {}, kNone, quantized[x]});
        }
        node.in_acts = quantized[x];
      }
      for (ValueId v : node.out) made_by[size_t(v)] = nodes.size();
      nodes.push_back(std::move(node));
    }
    g_.nodes = std::move(nodes);
    drop_unread();
  }
  bool reads_quantized(const Node& n) const {
    if (!std::visit([]<class Op>(const Op&) { return kCanReadActs<Op>; }, n.op)) return false;
    for (ValueId v : n.in)
      if (const Weight* w = g_.values[v].weight; w && w->info.tiled() && reads_acts(w->info.format))
        return true;
    return false;
  }
  void drop_unread() {
    std::vector<bool> read(g_.values.size());
    for (const Node& n : g_.nodes)
      for (size_t i = 0; i < n.in.size(); ++i)
        if (reads_floats(g_, n, i)) read[n.in[i]] = true;
    for (ValueId v : {g_.result, g_.all_hidden})
      if (v != kNone) read[v] = true;
    for (Node& n : g_.nodes)
      for (ValueId& v : n.out)
        if (!read[v] && can_quantize(n)) v = kNone;
  }

  Graph& g_;
  std::vector<int> uses_;        // by value: readers, and the result if it is one
  std::vector<Node*> producer_;  // by value
  std::vector<bool> removed_;    // by node
};

}  // namespace

bool reads_floats(const Graph& graph, const Node& node, size_t i) {
  if (i > 0 || node.in_acts == kNone) return true;
  for (ValueId v : node.in)
    if (const Weight* w = graph.values[v].weight;
        w && w->info.tiled() && !reads_acts(w->info.format))
      return true;
  return false;
}

void fuse(Graph& graph, Fuse which) { Fuser(graph).run(which); }

}  // namespace chaski
