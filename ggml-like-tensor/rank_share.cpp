#include "ggml-like-tensor/rank_share.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace chaski {

namespace {

constexpr int kWhole = -1;           // a value of which every rank needs all columns
constexpr int64_t kRowsAtOnce = 32;  // whole strips, and whole blocks of quantized outputs

}  // namespace

// Some rows of each expert of a weight.
class RankShare::SomeRows final : public ExpertPlaces {
 public:
  SomeRows(const std::byte* first, size_t an_expert, int64_t experts)
      : first_(first), an_expert_(an_expert), seen_(size_t(experts)) {
    order_.reserve(size_t(experts));
  }

  void expect(const int32_t* chosen, int64_t tokens, int64_t a_token) override {
    order_.clear();
    std::fill(seen_.begin(), seen_.end(), false);
    for (int64_t i = 0; i < tokens * a_token; ++i)
      if (const auto expert = size_t(chosen[i]); !seen_[expert])
        seen_[expert] = true, order_.push_back(chosen[i]);
  }
  int64_t in_order(int64_t place) const override {
    return size_t(place) < order_.size() ? order_[size_t(place)] : -1;
  }
  const std::byte* hold(int64_t expert) override { return first_ + size_t(expert) * an_expert_; }
  void release(int64_t) override {}

 private:
  const std::byte* const first_;
  const size_t an_expert_;
  std::vector<bool> seen_;
  std::vector<int32_t> order_;
};

RankShare::RankShare(int rank, std::vector<double> speeds, uint64_t least_bytes)
    : rank_(rank), speeds_(std::move(speeds)), least_bytes_(least_bytes) {}
RankShare::~RankShare() = default;

std::vector<int64_t> RankShare::cut(int64_t n) const {
  const double all = std::accumulate(speeds_.begin(), speeds_.end(), 0.0);
  std::vector<int64_t> first{0};
  double before = 0;
  for (const double speed : speeds_) {
    before += speed;
    // A sum of thirds may be a little less than one.
    first.push_back(std::min(n, int64_t(double(n) * before / all + 1e-6)));
  }
  first.back() = n;
  return first;
}

ExpertPlaces* RankShare::places_of(const Weight& view) const {
  const auto found = places_.find(&view);
  return found == places_.end() ? nullptr : found->second.get();
}

const Weight* RankShare::keep(Weight view, const Weight& of, int64_t first, int64_t end) {
  std::unique_ptr<Weight>& kept = views_[{&of, first, end}];
  if (!kept) kept = std::make_unique<Weight>(std::move(view));
  return kept.get();
}

const Weight* RankShare::rows(const Weight& w, int64_t first, int64_t end) {
  Weight view = w;
  view.info.rows = end - first;
  view.data += size_t(first / kStrip) * strip_bytes(w.info.format, w.info.cols);
  return keep(std::move(view), w, first, end);
}

// Of a vector of floats.
const Weight* RankShare::columns(const Weight& w, int64_t first, int64_t end) {
  ENSURE(w.info.rows == 1 && w.info.format == Format::f32, "a divided vector has floats");
  Weight view = w;
  view.info.cols = end - first;
  view.data += size_t(first) * sizeof(float);
  return keep(std::move(view), w, first, end);
}

const Weight* RankShare::expert_rows(const Weight& w, int64_t experts, int64_t first, int64_t end) {
  const size_t strip = strip_bytes(w.info.format, w.info.cols),
               an_expert = size_t(w.info.rows / experts / kStrip) * strip;
  Weight view = w;
  view.info.rows = experts * (end - first);
  const Weight* const kept = keep(std::move(view), w, first, end);
  std::unique_ptr<SomeRows>& places = places_[kept];
  if (!places)
    places =
        std::make_unique<SomeRows>(w.data + size_t(first / kStrip) * strip, an_expert, experts);
  return kept;
}

// A copy of the biases of outputs `first` to `end` - 1 of every expert.
const Weight* RankShare::expert_columns(const Weight& w, int64_t experts, int64_t first,
                                        int64_t end) {
  ENSURE(w.info.rows == 1 && w.info.format == Format::f32, "a divided vector has floats");
  if (const auto found = views_.find({&w, first, end}); found != views_.end())
    return found->second.get();
  std::vector<float>& copy = copies_.emplace_back();
  const auto* from = reinterpret_cast<const float*>(w.data);
  for (int64_t e = 0, all = w.info.cols / experts; e < experts; ++e)
    copy.insert(copy.end(), from + e * all + first, from + e * all + end);
  Weight view = w;
  view.info.cols = int64_t(copy.size());
  view.data = reinterpret_cast<const std::byte*>(copy.data());
  return keep(std::move(view), w, first, end);
}

// Rewrites a graph, node by node. A value whose readers need only some heads is made with the
// columns of these heads; other values are made whole, by a gather if ranks compute parts of them.
class Divider {
 public:
  Divider(Graph& graph, RankShare& share)
      : g_(graph),
        share_(share),
        need_(graph.values.size()),
        uses_(graph.values.size()),
        part_(graph.values.size()),
        slices_(graph.values.size(), kNone),
        read_by_mix_(graph.values.size()) {}

  std::vector<Gather> run() {
    find_states();
    find_needs();
    std::vector<Node> nodes = std::move(g_.nodes);
    for (Node& n : nodes) divide(std::move(n)), ++message_;
    g_.nodes = std::move(nodes_);
    for (size_t i = 0; i < g_.states.size(); ++i)
      if (heads_[i] > 0) std::get<Paged>(g_.states[i]).heads = int(own(heads_[i]).count());
    return std::move(gathers_);
  }

 private:
  struct Range {
    int64_t first, end;
    int64_t count() const { return end - first; }
  };
  // The columns of this rank.
  Range own_of(std::span<const int64_t> cut) const {
    return {cut[size_t(share_.rank_)], cut[size_t(share_.rank_) + 1]};
  }
  Range own(int64_t heads) const { return own_of(share_.cut(heads)); }

  GraphValue& value(ValueId v) { return g_.values[size_t(v)]; }
  int64_t columns(ValueId v) { return value(v).shape.cols; }
  ValueId add(GraphValue v) {
    g_.values.push_back(v);
    return ValueId(g_.values.size()) - 1;
  }
  ValueId add(const Weight* w) { return add({{w->info.rows, w->info.cols}, w}); }

  // heads_: by state, the key heads that are divided, or 0.
  void find_states() {
    heads_.assign(g_.states.size(), 0);
    for (size_t i = 0; i < heads_.size(); ++i)
      if (const auto* s = std::get_if<Paged>(&g_.states[i]); s && s->heads > 1 && !s->v_inside_k)
        heads_[i] = s->heads;
    for (const Node& n : g_.nodes) {
      const StateId* const state = state_of(n.op);
      if (!state) continue;
      const auto* op = std::get_if<Attention>(&n.op);
      const bool divides = std::holds_alternative<KvWrite>(n.op) ||
                           (op && op->source == Attention::Source::pages && op->max_bias == 0);
      if (!divides) heads_[size_t(*state)] = 0;
    }
  }
  int heads_of(const Node& n) const {
    const StateId* const state = state_of(n.op);
    return state ? heads_[size_t(*state)] : 0;
  }

  // need_: by value, the number of heads if each reader needs only those of its rank; kWhole; or 0
  // if it is not read.
  void need(ValueId v, int what) {
    if (v == kNone) return;
    int& known = need_[size_t(v)];
    known = known == 0 || known == what ? what : kWhole;
  }
  void find_needs() {
    for (ValueId v : {g_.result, g_.all_hidden}) need(v, kWhole);
    for (size_t i = g_.nodes.size(); i-- > 0;) {
      const Node& n = g_.nodes[i];
      for (ValueId v : n.in) ++uses_[size_t(v)];
      if (std::holds_alternative<Mix>(n.op)) read_by_mix_[size_t(n.in[0])] = true;
      need(n.in_acts, kWhole);
      const int heads = heads_of(n), wanted = heads > 0 ? heads : local_heads(n);
      for (ValueId v : n.in)
        if (!value(v).weight) need(v, wanted > 0 ? wanted : kWhole);
    }
  }
  // If the node computes each head by itself, and its readers need heads: their number. Else 0.
  int local_heads(const Node& n) const {
    if (n.out.empty() || n.out[0] == kNone || n.acts != kNone) return 0;
    const int heads = need_[size_t(n.out[0])];
    if (heads <= 0) return 0;
    if (const auto* op = std::get_if<Norm>(&n.op))
      return !op->adds && op->heads % heads == 0 ? heads : 0;
    if (const auto* op = std::get_if<Rope>(&n.op)) return op->heads % heads == 0 ? heads : 0;
    const bool elementwise =
        (std::holds_alternative<Scale>(n.op) || std::holds_alternative<Unary>(n.op) ||
         std::holds_alternative<Binary>(n.op)) &&
        std::ranges::none_of(n.in, [&](ValueId v) { return g_.values[size_t(v)].weight; });
    return elementwise && g_.values[size_t(n.out[0])].shape.cols % heads == 0 ? heads : 0;
  }

  void divide(Node n) {
    if (const auto* op = std::get_if<MatMul>(&n.op)) return matmul(std::move(n), op->weights);
    if (std::holds_alternative<GatedMatMul>(n.op)) return gated(std::move(n));
    if (const auto* op = std::get_if<ExpertMatMul>(&n.op))
      return experts(std::move(n), op->experts, 1, op->bias);
    if (const auto* op = std::get_if<GatedExpertMatMul>(&n.op))
      return experts(std::move(n), op->experts, 2, op->bias);
    if (std::holds_alternative<Mix>(n.op) && mixed_.contains(n.in[0])) return mix(std::move(n));
    if (const int heads = heads_of(n))
      return std::holds_alternative<KvWrite>(n.op) ? write(std::move(n), heads)
                                                   : attend(std::move(n), heads);
    if (const int heads = local_heads(n)) return local(std::move(n), heads);
    nodes_.push_back(std::move(n));
  }

  // The columns of this rank's heads.
  ValueId part(ValueId v, int heads) {
    if (part_[size_t(v)]) return v;
    ValueId& slice = slices_[size_t(v)];
    if (slice != kNone) return slice;
    const Range h = own(heads);
    const Shape whole = value(v).shape;
    const int64_t a_head = whole.cols / heads;
    slice = add({{whole.rows, h.count() * a_head}});
    nodes_.push_back({Columns{h.first * a_head, h.count() * a_head}, {v}, {slice}});
    return slice;
  }
  // `v` is made with the columns of this rank's heads only.
  void make_part(ValueId v, int heads) {
    value(v).shape.cols = value(v).shape.cols / heads * own(heads).count();
    part_[size_t(v)] = true;
  }
  // A vector with numbers of all heads.
  ValueId part_of_vector(ValueId v, int heads) {
    const Range h = own(heads);
    const int64_t a_head = columns(v) / heads;
    return add(share_.columns(*value(v).weight, h.first * a_head, h.end * a_head));
  }

  // Replaces an output by this rank's columns of it, which a gather after the last node completes.
  void gather(ValueId& out, std::vector<int64_t> cut, bool has_part) {
    if (out == kNone) return;
    const GraphValue whole = value(out);
    Gather g{nodes_.size(), message_, kNone, out, std::move(cut), false};
    g.for_first = out == g_.result && uses_[size_t(out)] == 0;
    if (has_part)
      out = g.own = add({{whole.shape.rows, own_of(g.first).count()}, nullptr, whole.kind});
    gathers_.push_back(std::move(g));
  }
  // Gathers that begin after the node that is added next belong to that node. If this rank does not
  // compute it, they follow the node before.
  void skip_node(size_t gathers) {
    ENSURE(!nodes_.empty(), "a graph begins with a node that every rank computes");
    for (size_t i = gathers; i < gathers_.size(); ++i) gathers_[i].step = nodes_.size() - 1;
  }

  // Rows of all ranks, in multiples of `step`. A weight of one row is taken for a vector, which has
  // no strips. So a single row at the end joins the rows before it.
  std::vector<int64_t> cut_rows(int64_t rows, int64_t step) const {
    const int64_t n = std::max<int64_t>((rows + step - 2) / step, 1);
    std::vector<int64_t> cut = share_.cut(n);
    for (int64_t& c : cut) c = c == n ? rows : c * step;
    return cut;
  }
  // Rows of all ranks by heads; empty if some are no whole strips.
  std::vector<int64_t> cut_heads(int64_t rows, int heads) const {
    if (heads <= 0 || rows % heads) return {};
    std::vector<int64_t> cut = share_.cut(heads);
    for (int64_t& c : cut) c *= rows / heads;
    const bool whole = std::all_of(cut.begin(), cut.end(),
                                   [&](int64_t c) { return c % kStrip == 0 || c == rows; });
    return whole && rows - *(std::lower_bound(cut.begin(), cut.end(), rows) - 1) > 1
               ? cut
               : std::vector<int64_t>{};
  }

  void matmul(Node n, int weights) {
    const bool bias = std::get<MatMul>(n.op).bias;
    uint64_t bytes = 0;
    std::vector<std::vector<int64_t>> cuts;
    for (int i = 0; i < weights; ++i) {
      const Weight& w = *value(n.in[size_t(1 + i)]).weight;
      cuts.push_back(cut_heads(w.info.rows, need_[size_t(n.out[size_t(i)])]));
      if (cuts.back().empty()) bytes += w.info.bytes();
    }
    for (int i = 0; i < weights; ++i) {
      ValueId &weight = n.in[size_t(1 + i)], &out = n.out[size_t(i)];
      const Weight& w = *value(weight).weight;
      std::vector<int64_t>& cut = cuts[size_t(i)];
      const bool by_heads = !cut.empty();
      if (!by_heads && bytes < share_.least_bytes_) continue;
      if (!by_heads) cut = cut_rows(w.info.rows, kRowsAtOnce);
      const Range r = own_of(cut);
      weight = add(share_.rows(w, r.first, r.end));
      if (bias) {
        ValueId& b = n.in[size_t(1 + weights + i)];
        b = add(share_.columns(*value(b).weight, r.first, r.end));
      }
      if (by_heads)
        make_part(out, need_[size_t(out)]);
      else
        gather(out, std::move(cut), true);
    }
    nodes_.push_back(std::move(n));
  }

  void gated(Node n) {
    const Weight &gate = *value(n.in[1]).weight, &up = *value(n.in[2]).weight;
    if (gate.info.bytes() + up.info.bytes() < share_.least_bytes_)
      return nodes_.push_back(std::move(n));
    const std::vector<int64_t> cut = cut_rows(gate.info.rows, kRowsAtOnce);
    const Range r = own_of(cut);
    n.in[1] = add(share_.rows(gate, r.first, r.end));
    n.in[2] = add(share_.rows(up, r.first, r.end));
    gather(n.out[0], cut, true), gather(n.acts, cut, true);
    nodes_.push_back(std::move(n));
  }

  // A weight that two nodes read is not divided: its places expect the experts of one node.
  void experts(Node n, int64_t experts, int weights, bool bias) {
    uint64_t bytes = 0;
    bool once = true;
    for (int i = 1; i <= weights; ++i) {
      const Weight& w = *value(n.in[size_t(i)]).weight;
      bytes += w.info.bytes() / uint64_t(experts);
      const auto reads = [&](const GraphValue& v) { return v.weight == &w; };
      once = once && std::count_if(g_.values.begin(), g_.values.end(), reads) == 1;
    }
    if (bytes < share_.least_bytes_ || !once) return nodes_.push_back(std::move(n));
    const int64_t outputs = value(n.in[1]).weight->info.rows / experts;
    std::vector<int64_t> cut = cut_rows(outputs, kRowsAtOnce);
    const Range r = own_of(cut);
    const size_t gathers = gathers_.size();
    if (is_mixed(n.out[0])) {
      mixed_[n.out[0]] = cut;
      value(n.out[0]).shape.cols = r.count();
    } else {
      gather(n.out[0], cut, r.count() > 0), gather(n.acts, cut, r.count() > 0);
    }
    if (r.count() == 0) return skip_node(gathers);
    for (int i = 1; i <= weights; ++i) {
      ValueId& w = n.in[size_t(i)];
      w = add(share_.expert_rows(*value(w).weight, experts, r.first, r.end));
      if (!bias) continue;
      ValueId& b = n.in[size_t(weights + 1 + i)];  // after x, the weights and the experts
      b = add(share_.expert_columns(*value(b).weight, experts, r.first, r.end));
    }
    nodes_.push_back(std::move(n));
  }

  // Whether the only reader adds the results of a token's experts, column by column. Then the sums
  // are gathered.
  bool is_mixed(ValueId v) const {
    return v != kNone && uses_[size_t(v)] == 1 && read_by_mix_[size_t(v)];
  }
  void mix(Node n) {
    const std::vector<int64_t>& cut = mixed_.at(n.in[0]);
    const bool has_part = own_of(cut).count() > 0;
    const size_t gathers = gathers_.size();
    gather(n.out[0], cut, has_part);
    has_part ? nodes_.push_back(std::move(n)) : skip_node(gathers);
  }

  // A node that computes each head by itself.
  void local(Node n, int heads) {
    const auto count = int(own(heads).count());
    const ValueId out = n.out[0];
    if (count > 0) {
      if (auto* op = std::get_if<Norm>(&n.op)) {
        for (size_t i = 1; i < n.in.size(); ++i)  // weights that heads do not share
          if (columns(n.in[i]) == columns(out)) n.in[i] = part_of_vector(n.in[i], heads);
        op->heads = op->heads / heads * count;
      } else if (auto* rope = std::get_if<Rope>(&n.op)) {
        rope->heads = rope->heads / heads * count;
      }
      for (ValueId& v : n.in)
        if (!value(v).weight) v = part(v, heads);
    }
    make_part(out, heads);
    if (count > 0) nodes_.push_back(std::move(n));
  }

  void write(Node n, int heads) {
    auto& op = std::get<KvWrite>(n.op);
    const auto count = int(own(heads).count());
    if (op.rope) {
      ENSURE(need_[size_t(n.out[0])] == heads, "the queries are those of the keys");
      op.q.heads = op.q.heads / heads * count, op.k.heads = count;
    }
    op.kv.heads = count;
    if (count > 0)
      for (ValueId& v : n.in) v = value(v).weight ? part_of_vector(v, heads) : part(v, heads);
    if (op.rope) make_part(n.out[0], heads);
    if (count > 0) nodes_.push_back(std::move(n));
  }

  void attend(Node n, int heads) {
    auto& op = std::get<Attention>(n.op);
    const auto count = int(own(heads).count());
    std::vector<int64_t> cut = share_.cut(heads);
    for (int64_t& c : cut) c *= int64_t(op.group()) * op.kv.v_dim;
    if (count > 0)
      for (ValueId& v : n.in) v = value(v).weight ? part_of_vector(v, heads) : part(v, heads);
    const size_t gathers = gathers_.size();
    gather(n.out[0], cut, count > 0), gather(n.acts, cut, count > 0);
    if (count == 0) return skip_node(gathers);
    op.heads = op.group() * count, op.kv.heads = count;
    nodes_.push_back(std::move(n));
  }

  Graph& g_;
  RankShare& share_;
  std::vector<int> need_, uses_;  // by value
  std::vector<bool> part_;        // by value: it has the columns of this rank's heads
  std::vector<ValueId> slices_;   // by value: part()
  std::vector<int> heads_;
  std::vector<bool> read_by_mix_;                  // by value, as its input 0
  std::map<ValueId, std::vector<int64_t>> mixed_;  // results of experts: the columns of all ranks
  std::vector<Node> nodes_;
  std::vector<Gather> gathers_;
  size_t message_ = 0;
};

std::vector<Gather> RankShare::divide(Graph& fused) { return Divider(fused, *this).run(); }

}  // namespace chaski
