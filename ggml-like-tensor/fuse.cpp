#include "ggml-like-tensor/fuse.h"

#include <algorithm>

namespace chaski {

namespace {

template <class Op>
Op* as(Node& node) {
  return std::get_if<Op>(&node.op);
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : g_(graph) {}

  void run() {
    gate();
    share();
    add_norm();
    rotate();
    quantize();
  }

 private:
  int uses(ValueId v) const {
    int n = v == g_.result;
    for (const Node& node : g_.nodes) n += int(std::count(node.in.begin(), node.in.end(), v));
    return n;
  }
  Node* producer(ValueId v) {
    for (Node& node : g_.nodes)
      if (std::count(node.out.begin(), node.out.end(), v)) return &node;
    return nullptr;
  }
  // The producer of v if it is an Op whose only reader is the one who asks.
  template <class Op>
  Node* sole(ValueId v) {
    Node* node = producer(v);
    return node && as<Op>(*node) && uses(v) == 1 ? node : nullptr;
  }
  void erase(std::vector<Node*> gone) {
    std::sort(gone.begin(), gone.end(), std::greater<>());
    for (Node* n : gone) g_.nodes.erase(g_.nodes.begin() + (n - g_.nodes.data()));
  }
  bool plain_matmul(Node* n) { return n && as<MatMul>(*n)->weights == 1 && !as<MatMul>(*n)->bias; }

  void gate() {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      Node& mul = g_.nodes[i];
      if (!as<Binary>(mul) || as<Binary>(mul)->kind != Binary::Kind::mul) continue;
      Node *act = sole<Unary>(mul.in[0]), *up = sole<MatMul>(mul.in[1]);
      Node* gate = act ? sole<MatMul>(act->in[0]) : nullptr;
      if (!plain_matmul(gate) || !plain_matmul(up) || gate->in[0] != up->in[0]) continue;
      mul.in = {gate->in[0], gate->in[1], up->in[1]};
      mul.op = GatedMatMul{as<Unary>(*act)->kind};
      erase({gate, act, up});
      i -= 3;
    }
  }

  void share() {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!as<MatMul>(g_.nodes[i])) continue;
      for (size_t j = i + 1; j < g_.nodes.size() && as<MatMul>(g_.nodes[i])->weights < 3;) {
        Node &a = g_.nodes[i], &b = g_.nodes[j];
        MatMul *first = as<MatMul>(a), *other = as<MatMul>(b);
        if (!other || b.in[0] != a.in[0] || other->weights != 1 || other->bias != first->bias) {
          ++j;
          continue;
        }
        a.in.insert(a.in.begin() + 1 + first->weights, b.in[1]);
        if (first->bias) a.in.push_back(b.in[2]);
        a.out.push_back(b.out[0]);
        ++first->weights;
        g_.nodes.erase(g_.nodes.begin() + long(j));
      }
    }
  }

  void add_norm() {
    for (size_t i = 1; i < g_.nodes.size(); ++i) {
      Node &norm = g_.nodes[i], &add = g_.nodes[i - 1];
      if (!as<Norm>(norm) || !as<Binary>(add) || as<Binary>(add)->kind != Binary::Kind::add ||
          add.out[0] != norm.in[0])
        continue;
      norm.in.erase(norm.in.begin());
      norm.in.insert(norm.in.begin(), {add.in[0], add.in[1]});
      norm.out.push_back(add.out[0]);
      as<Norm>(norm)->adds = true;
      erase({&add});
      --i;
    }
  }

  void rotate() {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      Node& write = g_.nodes[i];
      if (!as<KvWrite>(write)) continue;
      Node *k = sole<Rope>(write.in[0]), *q = nullptr;
      for (size_t j = i; j-- > 0 && i - j <= 3 && !q;)
        if (as<Rope>(g_.nodes[j]) && &g_.nodes[j] != k) q = &g_.nodes[j];
      if (!k || !q || as<Rope>(*q)->spec != as<Rope>(*k)->spec) continue;
      KvWrite& op = *as<KvWrite>(write);
      op.rope = true, op.q = *as<Rope>(*q), op.k = *as<Rope>(*k);
      write.in = {k->in[0], write.in[1], q->in[0]};
      write.out = {q->out[0]};
      erase({k, q});
      i -= 2;
    }
  }

  // Nodes that can leave their row quantized as well: whole blocks of 32 come out of one unit.
  bool can_quantize(const Node& n) const {
    if (const auto* attention = std::get_if<Attention>(&n.op)) return attention->head_dim % 32 == 0;
    return std::holds_alternative<Norm>(n.op) || std::holds_alternative<GatedMatMul>(n.op);
  }

  void quantize() {
    std::vector<ValueId> quantized(g_.values.size(), kNone);
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!reads_quantized(g_.nodes[i])) continue;
      const ValueId x = g_.nodes[i].in[0];
      if (quantized[x] == kNone) {
        quantized[x] = ValueId(g_.values.size());
        g_.values.push_back({g_.values[x].shape, nullptr, true});
        Node* from = producer(x);
        if (from && can_quantize(*from) && from->out[0] == x) {
          from->acts = quantized[x];
        } else {
          g_.nodes.insert(g_.nodes.begin() + long(i),
                          Node{QuantizeActs{}, {x}, {}, kNone, quantized[x]});
          ++i;
        }
      }
      g_.nodes[i].in_acts = quantized[x];
    }
    drop_unread();
  }
  bool reads_quantized(const Node& n) const {
    if (!std::holds_alternative<MatMul>(n.op) && !std::holds_alternative<GatedMatMul>(n.op))
      return false;
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
    if (g_.result != kNone) read[g_.result] = true;
    for (Node& n : g_.nodes)
      for (ValueId& v : n.out)
        if (!read[v] && (can_quantize(n) || std::holds_alternative<KvWrite>(n.op))) v = kNone;
  }

  Graph& g_;
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

void fuse(Graph& graph) { Fuser(graph).run(); }

}  // namespace chaski
