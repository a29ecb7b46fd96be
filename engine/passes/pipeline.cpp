#include "engine/passes/pipeline.h"

namespace chaski {

Pipeline::Pipeline(const Model& model, const StateLayout& states) : model_(model), states_(states) {
  batch.tables.resize(states.pools.size()), batch.stores.resize(states.pools.size());
  columns_of(Network::decoder);  // now: any thread may call Engine::hidden_size()
}

void Pipeline::add(std::unique_ptr<Stage> stage) {
  ENSURE(stage->layers().first == (stages_.empty() ? 0 : stages_.back()->layers().end),
         "a stage begins where the one before it ends");
  stages_.push_back(std::move(stage));
}

void Pipeline::copy_page(int pool, int32_t from, int32_t to) {
  for (const auto& stage : stages_) stage->copy_page(pool, from, to);
}

size_t Pipeline::host_page_bytes(int pool) const {
  size_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->host_page_bytes(pool);
  return bytes;
}

CpuStage* Pipeline::whole_on_cpu() const {
  const bool one_here = stages_.size() == 1 && stages_[0]->host_states();
  return one_here ? dynamic_cast<CpuStage*>(stages_[0].get()) : nullptr;
}

template <class Kind>
Kind* Pipeline::first() const {
  for (const auto& stage : stages_)
    if (auto* found = dynamic_cast<Kind*>(stage.get())) return found;
  return nullptr;
}
CpuStage* Pipeline::cpu() const { return first<CpuStage>(); }
CudaStage* Pipeline::cuda() const { return first<CudaStage>(); }

bool Pipeline::run(PassWork work) {
  readings_.plan(batch, states_.pools);
  work.profile = profile;
  std::span<const float> input = input_rows;
  for (const auto& stage : stages_) {
    if (!stage->run(work, input)) return false;
    if (stage != stages_.back()) input = stage->result();
  }
  if (profile) ++profile->passes;
  return true;
}

const Pipeline::Columns& Pipeline::columns_of(Network network) const {
  std::optional<Columns>& columns = columns_[size_t(network)];
  if (!columns) {
    Batch one;
    one.tokens.resize(1), one.outputs.resize(1);
    const Graph g = stage_graph(model_, all_layers(model_), one, Result::logits, network);
    columns = {g.values[size_t(g.result)].shape.cols,
               g.hidden == kNone ? 0 : g.values[size_t(g.hidden)].shape.cols};
  }
  return *columns;
}

int64_t Pipeline::columns(Result what, Network network) const {
  const Columns& columns = columns_of(network);
  return what == Result::hidden ? columns.hidden : columns.logits;
}

int64_t Pipeline::second_columns() const {
  return second_columns_.value_or(columns_of(Network::decoder).hidden);
}

void Pipeline::set_second_output(std::function<ValueId(Graph&)> made, int64_t columns) {
  whole_on_cpu()->set_second_output(std::move(made));
  second_columns_ = columns;
}

}  // namespace chaski
