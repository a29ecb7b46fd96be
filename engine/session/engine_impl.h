// The inside of Engine, shared with Session: private to engine/.
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
  std::string rope_scaling;  // as EngineOptions has it
  StateLayout states;        // of all layers, wherever they are
  int64_t hidden = 0;        // columns of Result::hidden; 0: the model does not give it out
  int64_t beside = 0;        // of what Result::both gives out beside the logits
  int64_t logits = 0;        // of Result::logits

  Batch batch;              // of the next pass
  ReadingPlanner readings;  // what its attention reads
  std::vector<float> rows;  // of its tokens, of a model that goes by such
  // The rows of a pass of several batches (pass.cpp). Kept so that the next pass reuses the memory.
  std::vector<float> kept_rows, kept_hidden;
  PassContext host;  // where the CPU's part of it runs
  // The CPU runs the first layers and the device the others; without a device the CPU runs all.
  // Each has the pages of its own layers, under the same numbers, which `pools` hand out. By pool
  // of states:
  std::vector<std::unique_ptr<HostPages>> pages;
  std::unique_ptr<CpuPasses> cpu;
  std::unique_ptr<DevicePasses> device;
  std::vector<KvPool> pools;
  // None where there are recurrent states, which have no pages of 16 tokens, where there are no
  // states at all, and for a model whose tokens come with rows, which a text does not say.
  std::optional<PrefixIndex> prefixes;

  std::shared_ptr<Engine> target;  // of a model that guesses for another, by that one's head
  Profile* profile = nullptr;      // unless it is null, passes add what they do to it

  int cpu_layers() const { return device ? device->first_layer() : int(model->n_layers); }
  // One pass over `batch`. With `draws`, one for each output, for which there must be a device, the
  // device draws the tokens from the logits. It may still be working when this returns. False if
  // the pass was abandoned, because `stop` was set while the CPU had its part in hand.
  bool run(Result what = Result::logits, std::span<const CudaDraw> draws = {},
           const std::atomic<bool>* stop = nullptr);
  int64_t columns(Result what) const { return what == Result::hidden ? hidden : logits; }
  // What the last run gave, valid until the next: a row of columns() for each output, or, if it
  // drew, a token for each, which is -1 where a logit is not finite. Both wait for the device.
  const float* result() { return device ? device->result() : result_; }
  std::span<const int32_t> tokens() { return device->tokens(); }
  // Of a run for Result::both, which the CPU alone makes: a hidden row for each token.
  const float* hidden_rows() const { return cpu->hidden(); }

 private:
  const float* result_ = nullptr;  // of the CPU
};

}  // namespace chaski
