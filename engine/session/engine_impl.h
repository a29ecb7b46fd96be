// The state of an Engine, which Session, Pass and the quantizer use too. Private to engine/.
#pragma once
#include "engine/pages/kv_pool.h"
#include "engine/pages/prefix_index.h"
#include "engine/passes/cpu_passes.h"
#include "engine/passes/device_passes.h"
#include "engine/session/engine.h"
#include "ggml-like-tensor/reading.h"

namespace chaski {

struct EngineImpl {
  std::shared_ptr<const Weights> weights;
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  int context = 0, max_batch = 0;
  Format kv = Format::f16;
  std::string rope_scaling;  // EngineOptions::rope_scaling
  StateLayout states;        // of all layers, on the host or on the device
  // Columns of Result::hidden (0: the model has none), of the second output of Result::both, and of
  // Result::logits.
  int64_t hidden = 0, beside = 0, logits = 0;

  Batch batch;              // of the next pass
  ReadingPlanner readings;  // plans what its attention reads
  std::vector<float> rows;  // input rows of its tokens, for an EAGLE head
  // The rows of a pass of several batches (pass.cpp). Kept so that the next pass reuses the memory.
  std::vector<float> kept_rows, kept_hidden;
  PassContext host;  // states and rotary angles of the CPU's layers
  // The CPU runs the first layers and the device the others; without a device the CPU runs all.
  // Each stores the pages of its own layers. Both use the same page numbers, which `pools`
  // allocate. `pages` and `pools` are by pool of states.
  std::vector<std::unique_ptr<HostPages>> pages;
  std::unique_ptr<CpuPasses> cpu;
  std::unique_ptr<DevicePasses> device;
  std::vector<KvPool> pools;
  // Empty for models with recurrent states (they have no pages of 16 tokens), without states, or
  // with input rows (the tokens alone do not determine the pages).
  std::optional<PrefixIndex> prefixes;

  std::shared_ptr<Engine> target;  // of a draft head: the engine that it drafts for
  Profile* profile = nullptr;      // if set, passes add their times to it

  int cpu_layers() const { return device ? device->first_layer() : int(model->n_layers); }
  // Runs all layers over `batch`. If `draws` has one draw for each output, the device also draws
  // the tokens. The device may still be working when this returns. Returns false if the pass was
  // abandoned, because `stop` was set while the CPU ran its layers.
  bool run(Result what = Result::logits, std::span<const CudaDraw> draws = {},
           const std::atomic<bool>* stop = nullptr);
  int64_t columns(Result what) const { return what == Result::hidden ? hidden : logits; }
  // The result of the last run, valid until the next one: a row of columns() for each output, or,
  // if the device drew, a token for each output (-1: a logit is not finite). Both wait for the
  // device.
  const float* result() { return device ? device->result() : result_; }
  std::span<const int32_t> tokens() { return device->tokens(); }
  // After a run for Result::both, which only the CPU supports: a hidden state for each token.
  const float* hidden_rows() const { return cpu->hidden(); }

 private:
  const float* result_ = nullptr;  // of the CPU's layers
};

}  // namespace chaski
