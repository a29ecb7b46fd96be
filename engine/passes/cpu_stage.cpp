#include "engine/passes/cpu_stage.h"

#include <algorithm>
#include <cstring>

#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/base/memory.h"

namespace chaski {

CpuStage::CpuStage(const Model& model, Layers layers, const Batch& batch, Format kv,
                   std::shared_ptr<Crew> crew, int threads, bool threads_fixed)
    : batch_(batch),
      executor_(std::move(crew), threads, threads_fixed),
      model_(model),
      layers_(layers),
      backend_(cpu_backend()) {
  where_.states = states_of(model, layers, kv);
}

void CpuStage::reserve(std::span<const int64_t> pages) {
  std::vector<std::byte*> addresses;
  for (size_t i = 0; i < where_.states.pools.size(); ++i) {
    const size_t bytes = size_t(pages[i]) * where_.states.pools[i].page_bytes;
    addresses.push_back(pages_.emplace_back(std::make_unique<HostPages>(bytes))->data());
  }
  where_.states.place(addresses);
}

void CpuStage::copy_page(int pool, int32_t from, int32_t to) {
  where_.states.copy_page(pool, from, to, [](std::byte* target, const std::byte* source, size_t n) {
    std::memcpy(target, source, n);
  });
}

std::unique_ptr<Plan> CpuStage::plan(const PassWork& work) const {
  const Layers layers = part_ ? Layers{part_->first, part_->last} : layers_;
  const bool second = work.result == Result::both && second_;
  Graph graph =
      stage_graph(model_, layers, batch_, second ? Result::logits : work.result, work.network);
  if (second) graph.all_hidden = second_(graph);
  return std::make_unique<Plan>(std::move(graph), backend_, batch_, where_, Fuse::all, share_);
}

void CpuStage::set_second_output(std::function<ValueId(Graph&)> second) {
  second_ = std::move(second);
  plans_ = {};
}

void CpuStage::only(std::optional<Part> part) {
  const auto layers = [](const std::optional<Part>& of) {
    return of ? std::pair(of->first, of->last) : std::pair(-1, -1);
  };
  if (layers(part) != layers(part_)) plans_ = {};
  part_ = part;
}

void CpuStage::give_part(Plan& plan) {
  if (part_->first == 0) return;
  executor_.make_room(plan);
  const size_t cols = size_t(plan.input_shape().cols);
  for (size_t t = 0; t < batch_.cells.size(); ++t)
    std::copy_n(part_->rows->data() + size_t(batch_.cells[t]) * cols, cols,
                plan.input() + t * cols);
}

void CpuStage::take_part(const Plan& plan) {
  if (part_->last == model_.n_layers || part_->keep_input) return;
  const size_t cols = size_t(plan.result_shape().cols), rows = size_t(batch_.cells.back()) + 1;
  part_->rows->resize(std::max(part_->rows->size(), rows * cols));
  for (size_t t = 0; t < batch_.cells.size(); ++t)
    std::copy_n(plan.result() + t * cols, cols,
                part_->rows->data() + size_t(batch_.cells[t]) * cols);
}

// The executor allocates activations once, at their largest. Available memory is checked before,
// because a control group kills a process instead of refusing memory.
void CpuStage::expect_memory(const Plan& plan, uint64_t promised) {
  constexpr uint64_t kWorthAsking = 1 << 20;
  uint64_t need = plan.arena_bytes() + plan.shared_bytes() +
                  plan.scratch_bytes() * uint64_t(executor_.threads());
  for (size_t i = 0; i < ropes_.size(); ++i)
    need += uint64_t(angles_of(plan.graph().ropes[i], ropes_[i])) * sizeof(float);
  if (need < taken_ + kWorthAsking) return;
  // The addresses of the promised memory are taken already.
  const uint64_t pages = usable_pages().value_or(UINT64_MAX),
                 left = std::min(available_memory().value_or(UINT64_MAX),
                                 pages - std::min(pages, promised));
  if (need - taken_ > left)
    fail(Exit::memory,
         "activations of {} tokens at once need {} more memory, but only {} are available",
         batch_.size(), size_text(need - taken_), size_text(left));
  taken_ = need;
}

Plan& CpuStage::make_room(const PassWork& work) {
  Plan& plan = plans_.get(batch_, work.result, work.network, [&] { return this->plan(work); });
  ropes_.resize(plan.graph().ropes.size());
  expect_memory(plan, work.promised);
  return plan;
}

bool CpuStage::run(const PassWork& work, std::span<const float> input) {
  Plan& plan = make_room(work);
  extend_ropes(plan.graph());
  if (!input.empty()) {
    executor_.make_room(plan);
    std::copy(input.begin(), input.end(), plan.input());
  }
  if (part_) give_part(plan);
  std::vector<double> seconds;
  executor_.profile = work.profile ? &seconds : nullptr;
  const struct Reset {  // draft heads run their plans on this executor too
    Executor& executor;
    ~Reset() { executor.profile = nullptr; }
  } reset{executor_};
  if (!executor_.run(plan, work.stop)) return false;
  if (work.profile) work.profile->add(plan, seconds, false);
  if (part_) take_part(plan);
  const Shape shape = plan.result_shape();
  result_ = {plan.result(), size_t(shape.rows * shape.cols)};
  hidden_ = plan.all_hidden();
  return true;
}

// The number of angles after extend_ropes(). It is doubled each time, so that a decode step seldom
// computes any.
int64_t CpuStage::angles_of(const RopeSpec& spec, const std::vector<float>& known) const {
  int64_t need = 1;
  for (const int32_t p : batch_.positions) need = std::max<int64_t>(need, p + 1);
  const int64_t have = int64_t(known.size()) / spec.dim, context = model_.context;
  if (have >= need) return int64_t(known.size());
  return spec.dim *
         std::min<int64_t>(std::max(2 * have, need + 255), std::max<int64_t>(need, context));
}

// Computes the rotary angles of all positions so far.
void CpuStage::extend_ropes(const Graph& graph) {
  where_.ropes.resize(graph.ropes.size());
  for (size_t i = 0; i < ropes_.size(); ++i) {
    const RopeSpec& spec = graph.ropes[i];
    const auto have = int64_t(ropes_[i].size()), all = angles_of(spec, ropes_[i]);
    if (have < all) spec.append(ropes_[i], have / spec.dim, all / spec.dim);
    where_.ropes[i] = ropes_[i].data();
  }
}

}  // namespace chaski
