// The stages of an engine and the batch that they run: one forward pass at a time, in the thread
// that makes the passes. Any thread may call columns() of a decoder.
#pragma once
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "engine/passes/cpu_stage.h"
#include "engine/passes/cuda_stage.h"
#include "ggml-like-tensor/reading.h"

namespace chaski {

class Pipeline {
 public:
  // For a model with these states. The model outlives this. Add the stages before the first pass.
  Pipeline(const Model& model, const StateLayout& states);

  // The stages run in this order. Their layers are consecutive and begin with the model's first.
  void add(std::unique_ptr<Stage> stage);
  std::span<const std::unique_ptr<Stage>> stages() const { return stages_; }
  void copy_page(int pool, int32_t from, int32_t to);
  size_t host_page_bytes(int pool) const;  // of a page of all stages, in the memory of the host
  // The stage that runs all layers on the CPU, or null. Only this one can add a second output, run
  // a part of the layers, and call back after each step.
  CpuStage* whole_on_cpu() const;
  CpuStage* cpu() const;    // the first stage on the CPU, or null
  CudaStage* cuda() const;  // the stage on a GPU, or null

  // The next pass. Plans are bound to the address of the batch.
  Batch batch;
  std::span<const float> input_rows;  // (tokens, Model::row_columns), valid during the pass
  int max_batch = 0;                  // the most tokens of a batch
  Profile* profile = nullptr;         // if set, passes add their times to it
  // The rows of a pass of several batches (pass.cpp). Kept so that the next pass reuses the memory.
  std::vector<float> kept_rows, kept_hidden;

  // Runs all stages over the batch. The last stage may still be working when this returns. Returns
  // false if the pass was abandoned.
  bool run(PassWork work);

  // Whether a pass can draw the tokens itself.
  bool can_draw() const { return stages_.back()->can_draw(); }
  // Of the last run, valid until the next one: a row of columns() for each output, or a drawn token
  // for each output. Both wait for the last stage.
  const float* result() { return stages_.back()->result().data(); }
  std::span<const int32_t> tokens() { return stages_.back()->tokens(); }
  // After a run for Result::both: a row of second_columns() for each token.
  const float* second() const { return stages_.back()->all_hidden(); }

  int64_t columns(Result what, Network network = Network::decoder) const;
  int64_t second_columns() const;
  // Replaces the hidden states as the second output; see CpuStage::set_second_output().
  void set_second_output(std::function<ValueId(Graph&)> made, int64_t columns);

 private:
  struct Columns {
    int64_t logits, hidden;  // 0: the network has no such output
  };
  const Columns& columns_of(Network network) const;
  template <class Kind>
  Kind* first() const;

  const Model& model_;
  const StateLayout& states_;
  ReadingPlanner readings_;  // plans what the attention of the batch reads
  std::vector<std::unique_ptr<Stage>> stages_;
  mutable std::array<std::optional<Columns>, kNetworks> columns_;
  std::optional<int64_t> second_columns_;
};

}  // namespace chaski
