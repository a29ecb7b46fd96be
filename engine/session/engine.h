// A model, ready to run: weights, tokenizer, backend, threads. Immutable once open, apart from the
// pool of KV pages that its sessions share. One forward pass at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/pages/state_bytes.h"
#include "engine/passes/engine_options.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class Model;
class Session;
struct EngineImpl;
struct OpenModel;

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Throws Error: bad_file, io, memory (need and have are named), device, usage.
  static std::shared_ptr<Engine> open(const EngineOptions& options);
  // The same for a model file that open_model() has opened as options.model.
  static std::shared_ptr<Engine> open(OpenModel model, const EngineOptions& options);
  static std::shared_ptr<Engine> random(const ShapeOptions& shape, const EngineOptions& options);
  // Over weights in memory, which are shared.
  static std::shared_ptr<Engine> over(std::shared_ptr<const Weights> weights,
                                      const EngineOptions& options);
  // Over a model that is bound to its weights already and guesses for `target`, whose head it asks
  // too (draft_eagle.h): as many threads, the same context and format of keys and values, and
  // memory for as many sessions at once.
  static std::shared_ptr<Engine> guessing_for(std::shared_ptr<Engine> target,
                                              std::unique_ptr<Model> model,
                                              std::shared_ptr<const Weights> weights, int sessions);
  // Another engine over the same weights, which are not read again.
  std::shared_ptr<Engine> with(const EngineOptions& options) const;
  ~Engine();

  std::unique_ptr<Session> session();

  const Metadata& meta() const;
  const std::string& path() const;     // "(bundled)" for the bundled model
  const Tokenizer& tokenizer() const;  // Error(bad_file) if the model has none
  bool has_tokenizer() const;
  int vocab_size() const;
  int hidden_size() const;  // columns of Session::hidden(); 0: there is none
  int context_length() const;
  int batch_length() const;  // tokens of a pass, at most
  // Bytes per second that bench measured here: what the CPU reads, or what a device reads and
  // writes when it copies. 0 if it did not, or if both run layers, because then neither figure is a
  // limit.
  double memory_bandwidth() const;
  std::string memory() const;  // of which: "cpu, -t 4", "cuda:0 (NVIDIA H200)"
  // "cpu", "cuda:0 (NVIDIA H200)", "cuda:0 (NVIDIA H200), 20 of 32 layers"
  std::string device() const;
  int threads() const;            // at most
  double threads_used() const;    // on the average over all passes so far
  std::string isa() const;        // "avx512vnni", ...
  uint64_t weight_bytes() const;  // that one decoded token reads: of every matmul, once
  Format weight_format() const;   // of most of them
  std::string kv_type() const;    // as --kv names it
  uint64_t file_bytes() const;
  uint64_t state_bytes(int positions) const;  // read for the token after so many
  StateBytes states() const;                  // kept of a sequence

  EngineImpl& impl() { return *impl_; }

 private:
  Engine();
  std::unique_ptr<EngineImpl> impl_;
};

}  // namespace chaski
