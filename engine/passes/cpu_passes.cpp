#include "engine/passes/cpu_passes.h"

#include <algorithm>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"
#include "ggml-like-tensor/split.h"

namespace chaski {

Graph cpu_graph(const Model& model, int layers, const Batch& batch, Result what) {
  Graph graph(batch);
  model.build(graph);
  graph.want(what);
  return layers < model.n_layers ? split(std::move(graph), layers).first : graph;
}

CpuPasses::CpuPasses(const Model& model, int layers, const Batch& batch, PassContext& where,
                     int threads, bool threads_fixed)
    : model_(model),
      layers_(layers),
      batch_(batch),
      where_(where),
      backend_(cpu_backend()),
      executor_(threads, threads_fixed) {}

std::unique_ptr<Plan> CpuPasses::plan(Result what) const {
  const bool made = what == Result::both && made_;
  Graph graph =
      cpu_graph(model_, part_ ? part_->last : layers_, batch_, made ? Result::logits : what);
  if (part_ && part_->first > 0) graph = split(std::move(graph), part_->first).rest;
  if (made) graph.all_hidden = made_(graph);
  return std::make_unique<Plan>(std::move(graph), backend_, batch_, where_);
}

void CpuPasses::give_beside(std::function<ValueId(Graph&)> made) {
  made_ = std::move(made);
  plans_ = {};
}

void CpuPasses::only(std::optional<Part> part) {
  const auto layers = [](const std::optional<Part>& of) {
    return of ? std::pair(of->first, of->last) : std::pair(-1, -1);
  };
  if (layers(part) != layers(part_)) plans_ = {};
  part_ = part;
}

void CpuPasses::give_part(Plan& plan) {
  if (part_->first == 0) return;
  executor_.make_room(plan);
  const size_t cols = size_t(plan.input_shape().cols);
  for (size_t t = 0; t < batch_.cells.size(); ++t)
    std::copy_n(part_->rows->data() + size_t(batch_.cells[t]) * cols, cols,
                plan.input() + t * cols);
}

void CpuPasses::take_part(const Plan& plan) {
  if (part_->last == model_.n_layers || part_->keep_input) return;
  const size_t cols = size_t(plan.result_shape().cols), rows = size_t(batch_.cells.back()) + 1;
  part_->rows->resize(std::max(part_->rows->size(), rows * cols));
  for (size_t t = 0; t < batch_.cells.size(); ++t)
    std::copy_n(plan.result() + t * cols, cols,
                part_->rows->data() + size_t(batch_.cells[t]) * cols);
}

// The executor allocates activations once, at their largest. Available memory is checked before,
// because a control group kills a process instead of refusing memory.
void CpuPasses::expect_memory(const Plan& plan) {
  constexpr uint64_t kWorthAsking = 16 << 20;
  const uint64_t need = plan.arena_bytes() + plan.shared_bytes() +
                        plan.scratch_bytes() * uint64_t(executor_.threads());
  if (need < taken_ + kWorthAsking) return;
  if (const auto have = available_memory(); have && need - taken_ > *have)
    fail(Exit::memory,
         "activations of {} tokens at once need {:.3g} GB of memory, {:.3g} GB are available",
         batch_.size(), double(need) / 1e9, double(*have) / 1e9);
  taken_ = need;
}

std::optional<const float*> CpuPasses::run(Result what, std::span<const float> rows,
                                           Profile* profile, const std::atomic<bool>* stop) {
  Plan& plan = plans_.get(batch_, what, [&] { return this->plan(what); });
  expect_memory(plan);
  extend_ropes(plan.graph());
  if (!rows.empty()) {
    executor_.make_room(plan);
    std::copy(rows.begin(), rows.end(), plan.input());
  }
  if (part_) give_part(plan);
  std::vector<double> seconds;
  executor_.profile = profile ? &seconds : nullptr;
  const struct Reset {  // draft heads run their plans on this executor too
    Executor& executor;
    ~Reset() { executor.profile = nullptr; }
  } reset{executor_};
  if (!executor_.run(plan, stop)) return std::nullopt;
  if (profile) profile->add(plan, seconds, false);
  if (part_) take_part(plan);
  hidden_ = plan.all_hidden();
  return plan.result();
}

// Computes the rotary angles of all positions so far. Their number is doubled each time, so that a
// decode step seldom computes any.
void CpuPasses::extend_ropes(const Graph& graph) {
  int64_t need = 1;
  for (int32_t p : batch_.positions) need = std::max<int64_t>(need, p + 1);
  ropes_.resize(graph.ropes.size());
  where_.ropes.resize(graph.ropes.size());
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const RopeSpec& spec = graph.ropes[i];
    const int64_t have = int64_t(ropes_[i].size()) / spec.dim, context = model_.context;
    if (have < need)
      spec.append(
          ropes_[i], have,
          std::min<int64_t>(std::max(2 * have, need + 255), std::max<int64_t>(need, context)));
    where_.ropes[i] = ropes_[i].data();
  }
}

}  // namespace chaski
