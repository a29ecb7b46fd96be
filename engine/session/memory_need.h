// Predicts how much memory a model needs, from the shapes of its tensors, before its matrices are
// read. Engine::open() refuses a model that does not fit, and `chaski plan` prints the figures.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/session/engine.h"
#include "ggml-like-tensor/plan.h"
#include "models/architecture.h"

namespace chaski {

// A model whose matrices have shapes but no data. Its vectors are read, because the graph may
// depend on their values.
class ShapedModel {
 public:
  explicit ShapedModel(const ModelSource& source);  // throws what bind_model() throws
  Model& operator*() { return *model_; }

 private:
  Weights shapes_;
  std::vector<std::vector<std::byte>> vectors_;
  std::unique_ptr<Model> model_;
};

// A pass of the CPU over one sequence. It is planned to learn its size and never run.
class ImaginedPass {
 public:
  // Computes cells [from, end), and the result of the last `outputs` of them. `share`: the part of
  // a rank, which outlives this; null: the whole.
  ImaginedPass(const Model& model, int layers, Format kv, int from, int end, int outputs,
               RankShare* share = nullptr);
  const Plan& plan() const { return *plan_; }

 private:
  std::vector<int32_t> pages_;
  Batch batch_;
  PassContext where_;
  std::unique_ptr<Plan> plan_;
};

// The state that a sequence takes, without opening an engine. The KV cache has format `kv`. Returns
// nothing for a model that chaski cannot run.
std::optional<StateBytes> state_bytes(const ModelSource& source, Format kv);

// Whether the model has an output head of its own. Without one, its token table is the head too.
bool has_head(const Model& model);
// Whether every token reads such a weight whole: not a table of which it reads a row, nor experts.
bool is_read_whole(Role role, bool has_head);

// Bytes of weights that a pass over `tokens` tokens of as many texts reads: those of every matmul,
// once. Of experts, those that the tokens choose: their expected number (ops/expert_matmul.h).
uint64_t weight_bytes_a_pass(const Model& model, int64_t tokens);
inline uint64_t weight_bytes_a_token(const Model& model) { return weight_bytes_a_pass(model, 1); }

// The same of a model whose matrices are not read; nothing for one that chaski cannot run.
std::optional<uint64_t> weight_bytes_a_token(const ModelSource& source);

// Bytes that a model takes once it is open and has served one text as long as --ctx, or as the
// model's context but at most kDefaultPositions: weights, mapped or not, states and activations.
// Throws what bind_model() and settle() throw.
uint64_t memory_when_open(const ModelSource& source, const EngineOptions& options);
// Bytes that several models may take together: the free memory minus the reserve of prudent().
// Empty if the free memory is not known.
std::optional<uint64_t> memory_for_models();
// Without --ctx, what a session is promised.
constexpr int kDefaultPositions = 8192;

// The memory that the CPU's layers of a model take, by purpose, in bytes.
class Footprint {
 public:
  // For the first `layers` layers, run by `threads` threads. The model outlives this, and `share`
  // too: with it, states and activations are those of a rank. Throws Error(usage) if the KV cache
  // cannot have format `kv`.
  Footprint(const Model& model, int layers, Format kv, int threads, RankShare* share = nullptr);

  uint64_t weights() const { return weights_; }  // of the whole model
  // the same after `chaski quantize IN OUT --type`
  uint64_t weights_in(Format format) const;
  // KV cache, recurrent states and rotary angles of a sequence as long as the context.
  uint64_t states(int context) const;
  // Activations of the largest pass: floats, quantized values and the threads' scratch memory.
  uint64_t activations(int context) const;
  // The longest context up to `most` whose states and activations fit into `bytes`; 0: none.
  int longest_context(uint64_t bytes, int most) const;

 private:
  const Model& model_;
  const int layers_;
  const Format kv_;
  const int threads_;
  RankShare* const share_;
  uint64_t weights_ = 0;
  StateLayout layout_;
  uint64_t angles_ = 0;  // bytes per position
};

// How much of the free memory `have` may be promised to weights, states and activations. The rest
// covers what the program takes in addition (plans, samplers, text) and kReservedPages.
uint64_t promised(uint64_t have);
// How much of the free memory `have` a later start can rely on: a sixteenth is left over, at least
// 2 MB less than promised() are used, and if addresses are limited, each thread needs some.
uint64_t prudent(uint64_t have, int threads);

// Settings with which a model fits into memory.
struct Remedy {
  int context;                    // the longest that fits, up to the requested and the model's own
  Format kv;                      // of the KV cache
  std::optional<Format> weights;  // quantize the weights to this format
  uint64_t bytes;                 // weights, states and activations
};
// Settings that leave a context of at least kPage tokens. First those that change only the context,
// then the KV format, then the weights. `have` is for states, activations and, unless they are
// `mapped`, weights.
std::vector<Remedy> remedies(const Model& model, int layers, const EngineOptions& options,
                             int threads, int context, uint64_t have, bool mapped);
std::string remedy_text(const Remedy& remedy, const EngineOptions& options, int context);
// How the weights would need no memory of their own: "the weights of ... stay in the file". Empty
// if they are `mapped` or no layer is on the CPU (`layers`).
std::string advice_to_map(const ModelSource& source, bool mapped, int layers);

// Throws Error(memory), with the settings that would fit, if a model of these tensors does not fit
// into memory. No tensor is read. `mapped`: the weights stay in their file. Without --ctx pages are
// taken as the text grows, so no context is too long.
void expect_memory(const ModelSource& source, bool mapped, const EngineOptions& options);

}  // namespace chaski
