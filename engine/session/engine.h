// A model that is ready to run: weights, tokenizer, KV cache, and the pipeline of stages that runs
// its passes. It does not change after opening, except for the pages that its sessions share. It
// runs one forward pass at a time. Any thread may read facts of the model and of its options. Only
// the thread that makes the passes uses sessions, kv_cache(), pipeline() and counts of passes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/pages/state_bytes.h"
#include "engine/passes/engine_options.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/expert_facts.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class Model;
class Pipeline;
class Session;
struct KvCache;
struct OpenModel;
struct Placement;

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Throws Error: bad_file, io, memory (need and have are named), device, usage.
  static std::shared_ptr<Engine> open(const EngineOptions& options);
  // The same for a model file that open_model() has opened as options.model.
  static std::shared_ptr<Engine> open(OpenModel model, const EngineOptions& options);
  static std::shared_ptr<Engine> random(const ShapeOptions& shape, const EngineOptions& options);
  // Over weights in memory. They are shared, not copied. With `placement` its stages run the
  // layers, in place of those that settle() chooses.
  static std::shared_ptr<Engine> over(std::shared_ptr<const Weights> weights,
                                      const EngineOptions& options,
                                      const Placement* placement = nullptr);
  // A draft head: a model that is already bound to its weights and also uses the output head of
  // `target` (draft_eagle.h). It gets the threads, context and KV format of `target`, and memory
  // for `sessions` sessions.
  static std::shared_ptr<Engine> draft_head(std::shared_ptr<Engine> target,
                                            std::unique_ptr<Model> model,
                                            std::shared_ptr<const Weights> weights, int sessions);
  // Another engine over the same weights in memory.
  std::shared_ptr<Engine> with(const EngineOptions& options) const;
  ~Engine();

  std::unique_ptr<Session> session();
  // Waits until the converted model is written (EngineOptions::keep_converted), for measurements.
  void wait_until_kept();

  const Metadata& meta() const;
  const std::string& path() const;     // "(bundled)" for the bundled model
  const Tokenizer& tokenizer() const;  // Error(bad_file) if the model has none
  bool has_tokenizer() const;
  int vocab_size() const;
  int hidden_size() const;  // columns of Session::hidden(); 0: the model has no hidden output
  int context_length() const;
  int batch_length() const;  // the most tokens of a batch
  Format kv_format() const;
  const std::string& rope_scaling() const;  // EngineOptions::rope_scaling
  // Of a draft head: the engine that it drafts for. Else null.
  const std::shared_ptr<Engine>& target() const;
  // Memory bandwidth in bytes per second that `chaski bench` measured: of reads on the CPU, or of
  // copies on a device. 0 if it was not measured, or if both run layers, because then neither
  // figure is the limit.
  double memory_bandwidth() const;
  std::string memory() const;  // what that bandwidth is of: "cpu, -t 4", "cuda:0 (NVIDIA H200)"
  // "cpu", "cuda:0 (NVIDIA H200)", "cuda:0 (NVIDIA H200), 20 of 32 layers"
  std::string device() const;
  int threads() const;           // upper limit
  double threads_used() const;   // mean over all passes so far
  std::string isa() const;       // "avx512vnni", ...
  Format weight_format() const;  // the format of most weight bytes
  // Bytes of weights that a decode step of `sequences` sequences reads (weight_bytes_a_pass()).
  uint64_t weight_bytes(int sequences = 1) const;
  std::string kv_type() const;  // as --kv names it
  uint64_t file_bytes() const;
  uint64_t state_bytes(int positions) const;  // state that the token after `positions` reads
  StateBytes states() const;                  // state that a sequence takes
  // Of a model whose experts are not all in memory: what was found there and read so far.
  std::optional<ExpertFacts> expert_facts() const;
  // Bytes of weights that every pass reads from the file, because they do not fit into memory.
  uint64_t streamed_bytes() const;
  // Memory of all pages beyond which idle ones are reused before more is taken. It shrinks when the
  // machine has no more memory.
  uint64_t most_idle_bytes() const;

  const Model& model() const;
  const std::shared_ptr<const Weights>& weights() const;
  // For sessions and their passes, and for code that measures or changes how passes run.
  KvCache& kv_cache();
  const KvCache& kv_cache() const;
  Pipeline& pipeline();
  const Pipeline& pipeline() const;

 private:
  struct Impl;
  Engine();
  std::unique_ptr<Impl> impl_;
};

}  // namespace chaski
