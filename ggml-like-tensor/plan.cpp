#include "ggml-like-tensor/plan.h"

#include <algorithm>
#include <set>

#include "ggml-like-tensor/expert_cache.h"

namespace chaski {

namespace {

size_t value_bytes(const GraphValue& v) {
  const size_t n = v.kind == ValueKind::acts
                       ? size_t(v.shape.rows) * size_t(v.shape.cols / 32) * sizeof(Act) + kPastActs
                       : size_t(v.shape.rows) * size_t(v.shape.cols) * 4;
  return (n + 63) / 64 * 64;
}

// First fit: finds memory that is free by looking at the values that are alive at the same time.
struct Placed {
  size_t offset, bytes;
  int last_use;
};
size_t first_fit(std::vector<Placed>& alive, size_t bytes) {
  std::sort(alive.begin(), alive.end(),
            [](const Placed& a, const Placed& b) { return a.offset < b.offset; });
  size_t at = 0;
  for (const Placed& p : alive) {
    if (p.offset >= at + bytes) break;
    at = std::max(at, p.offset + p.bytes);
  }
  return at;
}

}  // namespace

Plan::Plan(Graph graph, const Batch& batch, const PassContext& where, int fused_steps, Fuse which,
           RankShare* share)
    : graph_(std::move(graph)), batch_(batch), where_(where), share_(share) {
  fuse(graph_, which);
  if (share_) gathers_ = share_->divide(graph_);
  for (const Node& n : graph_.nodes) steps.push_back({n.op, {}, nullptr});
  place_values(fused_steps);
}

Plan::Plan(Graph graph, const Backend& backend, const Batch& batch, const PassContext& where,
           Fuse which, RankShare* share)
    : Plan(std::move(graph), batch, where, 1, which, share) {
  for (Step& s : steps) s.kernel = &backend.table[s.op.index()];
}

void Plan::place_values(int fused_steps) {
  std::vector<int> last_use(graph_.values.size(), -1);
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& n = graph_.nodes[i];
    for (size_t k = 0; k < n.in.size(); ++k)
      if (reads_floats(graph_, n, k)) last_use[n.in[k]] = int(i);
    if (n.in_acts != kNone) last_use[n.in_acts] = int(i);
  }
  for (ValueId v : {graph_.result, graph_.all_hidden})
    if (v != kNone) last_use[v] = int(graph_.nodes.size());

  offsets_.assign(graph_.values.size(), 0);
  std::vector<Placed> alive;
  auto place = [&](ValueId v, int step) {
    if (v == kNone) return;
    const size_t bytes = value_bytes(graph_.values[v]);
    offsets_[v] = first_fit(alive, bytes);
    alive.push_back({offsets_[v], bytes, std::max(last_use[v], step)});
    arena_bytes_ = std::max(arena_bytes_, offsets_[v] + bytes);
  };
  place(graph_.input, 0);
  auto gather = gathers_.begin();
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    std::erase_if(alive, [&](const Placed& p) { return p.last_use + fused_steps - 1 < int(i); });
    for (ValueId v : graph_.nodes[i].out) place(v, int(i));
    place(graph_.nodes[i].acts, int(i));
    for (; gather != gathers_.end() && gather->step == i; ++gather) place(gather->whole, int(i));
  }
}

// The speed of a thread whose weights come from a near cache, and the seconds to start a step on n
// threads and wait for them. Both are rough; they only distinguish models of a few megabytes from
// larger ones.
constexpr double kBytesASecond = 20e9, kOpsASecond = 100e9;
constexpr double dispatch_cost(int n) { return n == 1 ? 0 : 1e-6 + 0.15e-6 * n; }

void Plan::cut(Step& s, Needs& needs) {
  s.units = s.kernel->units(s.op, s.args), s.a_chunk = s.kernel->grain(s.op, s.args);
  needs.scratch = std::max(needs.scratch, s.kernel->scratch(s.op, s.args));
  needs.shared = std::max(needs.shared, s.kernel->shared(s.op, s.args));
  const Cost cost = std::visit([&](const auto& op) { return op.cost(s.args); }, s.op);
  needs.seconds += std::max(cost.bytes / kBytesASecond, cost.flops / kOpsASecond);
}

void Plan::prepare() {
  needs_ = bound_needs_;
  for (const size_t i : with_state_) cut(steps[i], needs_);
}

int Plan::threads_worth(int most) const {
  const auto seconds = [&](int n) {
    return needs_.seconds / n + double(steps.size()) * dispatch_cost(n);
  };
  int best = 1;
  for (int n = 2; n <= most; ++n)
    if (seconds(n) < 0.85 * needs_.seconds && seconds(n) < seconds(best)) best = n;
  return best;
}

void Plan::announce_experts() {
  std::vector<Step*> made_by(graph_.values.size(), nullptr);
  std::set<ExpertPlaces*> once;
  for (size_t i = 0; i < steps.size(); ++i) {
    const Node& n = graph_.nodes[i];
    steps[i].announced.clear(), steps[i].reads_file = false;
    for (const ValueId v : n.out)
      if (v != kNone) made_by[size_t(v)] = &steps[i];
    Operand chosen;
    Step* router = nullptr;
    for (size_t k = 0; k < n.in.size(); ++k)
      if (graph_.values[size_t(n.in[k])].kind == ValueKind::i32)
        chosen = steps[i].args.in[k], router = made_by[size_t(n.in[k])];
    for (size_t k = 0; k < n.in.size(); ++k) {
      ExpertPlaces*& places = steps[i].args.in[k].places;
      if (!places) continue;
      // A weight expects the experts of one step. Other steps that read it take them from the file.
      const bool first = router && once.insert(places).second;
      ENSURE(first || !share_, "only one step multiplies a rank's rows of experts");
      if (first)
        router->announced.push_back({places, chosen}), steps[i].reads_file = true;
      else
        places = nullptr;
    }
  }
}

void Plan::bind_gathers() {
  for (Step& step : steps) step.gathers.clear();
  for (const Gather& g : gathers_) {
    Step::Gathered& bound = steps[g.step].gathers.emplace_back();
    bound.gather = &g;
    for (const ValueId v : {g.own, g.whole}) {
      if (v == kNone) continue;
      const GraphValue& value = graph_.values[size_t(v)];
      std::byte* const at = arena_ + offsets_[size_t(v)];
      if (value.kind == ValueKind::acts)
        (v == g.own ? bound.own_acts : bound.acts) = {reinterpret_cast<Act*>(at), value.shape.rows,
                                                      value.shape.cols / 32};
      else
        (v == g.own ? bound.own : bound.whole) = {.shape = value.shape, .data = at};
    }
  }
}

void Plan::bind(std::byte* arena, const WeightPlace& place) {
  auto operand = [&](ValueId id, bool needed) {
    Operand o;
    if (id == kNone) return o;
    const GraphValue& v = graph_.values[id];
    o.shape = v.shape;
    if (v.weight) {
      o.format = v.weight->info.format, o.weight = true;
      o.data = place ? place(*v.weight) : const_cast<std::byte*>(v.weight->data);
      if (share_)
        o.places = share_->places_of(*v.weight);
      else if (where_.experts && !place)
        o.places = where_.experts->places_of(*v.weight);
    } else if (needed) {
      o.data = arena + offsets_[id];
    }
    return o;
  };
  auto acts = [&](ValueId id) {
    if (id == kNone) return ActsView{};
    const Shape& s = graph_.values[id].shape;
    return ActsView{reinterpret_cast<Act*>(arena + offsets_[id]), s.rows, s.cols / 32};
  };
  arena_ = arena, bound_needs_ = {};
  with_state_.clear();
  for (size_t i = 0; i < steps.size(); ++i) {
    const Node& n = graph_.nodes[i];
    OpArgs& a = steps[i].args;
    a.n_in = int(n.in.size());
    for (size_t k = 0; k < n.in.size(); ++k) a.in[k] = operand(n.in[k], reads_floats(graph_, n, k));
    for (size_t k = 0; k < n.out.size(); ++k) a.out[k] = operand(n.out[k], true);
    // An output without readers of its floats still has its shape, which gives the kernel the
    // number of units.
    if (!n.out.empty() && n.out[0] == kNone && n.acts != kNone)
      a.out[0].shape = graph_.values[n.acts].shape;
    a.in_acts = acts(n.in_acts), a.acts = acts(n.acts);
    a.batch = &batch_, a.where = &where_;
    if (!steps[i].kernel) continue;
    if (state_of(steps[i].op))
      with_state_.push_back(i);
    else
      cut(steps[i], bound_needs_);
  }
  if (where_.experts || share_) announce_experts();
  bind_gathers();
  if (graph_.input != kNone) input_ = reinterpret_cast<float*>(arena + offsets_[graph_.input]);
  if (graph_.result != kNone)
    result_ = reinterpret_cast<const float*>(arena + offsets_[graph_.result]);
  if (graph_.all_hidden != kNone)
    all_hidden_ = reinterpret_cast<const float*>(arena + offsets_[graph_.all_hidden]);
}

}  // namespace chaski
