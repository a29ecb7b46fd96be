// A stage on the CPU.
#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "engine/pages/kv_pool.h"
#include "engine/passes/plan_cache.h"
#include "engine/passes/stage.h"
#include "ggml-like-tensor/executor.h"

namespace chaski {

class CpuStage : public Stage {
 public:
  // Runs `layers` of the model over `batch` with up to `threads` threads of the crew. Model and
  // batch outlive this.
  CpuStage(const Model& model, Layers layers, const Batch& batch, Format kv,
           std::shared_ptr<Crew> crew, int threads, bool threads_fixed);

  Layers layers() const override { return layers_; }
  std::string device() const override { return "cpu"; }
  void reserve(std::span<const int64_t> pages) override;
  void copy_page(int pool, int32_t from, int32_t to) override;
  const StateLayout* host_states() const override { return &where_.states; }
  size_t host_page_bytes(int pool) const override {
    return where_.states.pools[size_t(pool)].page_bytes;
  }
  bool run(const PassWork& work, std::span<const float> input) override;
  std::span<const float> result() override { return result_; }
  const float* all_hidden() const override { return hidden_; }

  // From now on runs only layers [first, last) of a single session; without a part, all its layers.
  // can_split() must allow both borders. `rows` has the input of layer `first` by cell, unless that
  // is layer 0. It is replaced by the output of layer `last` - 1, unless `keep_input` is set or
  // that is the model's last layer.
  struct Part {
    int first, last;
    std::vector<float>* rows;
    bool keep_input = false;
  };
  void only(std::optional<Part> part);
  // From now on the second output of Result::both is the value that `second` adds to the graph,
  // instead of the hidden states.
  void set_second_output(std::function<ValueId(Graph&)> second);
  // From now on takes experts from there. It outlives this.
  void use_experts(ExpertCache* experts) {
    where_.experts = executor_.experts = experts, plans_ = {};
  }
  // From now on streams weights from there. It outlives this.
  void use_stream(WeightStream* stream) { executor_.stream = stream, plans_ = {}; }
  bool has_second_output() const { return bool(second_); }

  Executor& executor() { return executor_; }
  const Backend& backend() const { return backend_; }
  const PassContext& context() const { return where_; }

 protected:
  const Batch& batch_;
  PassContext where_;           // states and rotary angles of the layers
  RankShare* share_ = nullptr;  // the part of this rank; null: the layers as a whole
  Executor executor_;

  // The plan of the pass, with memory for it. Throws Error(memory).
  Plan& make_room(const PassWork& work);

 private:
  std::unique_ptr<Plan> plan(const PassWork& work) const;
  void expect_memory(const Plan& plan, uint64_t promised);  // throws Error(memory)
  void give_part(Plan& plan);
  void take_part(const Plan& plan);
  int64_t angles_of(const RopeSpec& spec, const std::vector<float>& known) const;
  void extend_ropes(const Graph& graph);

  const Model& model_;
  const Layers layers_;
  std::vector<std::unique_ptr<HostPages>> pages_;  // by pool
  const Backend& backend_;
  std::function<ValueId(Graph&)> second_;
  std::optional<Part> part_;
  PlanCache<Plan> plans_;
  std::vector<std::vector<float>> ropes_;
  std::span<const float> result_;
  const float* hidden_ = nullptr;
  uint64_t taken_ = 0;  // bytes of activations and angles that expect_memory() has allowed
};

}  // namespace chaski
