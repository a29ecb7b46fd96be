// A model, ready to run: weights, tokenizer, backend, threads. Immutable once open, apart from the
// pool of KV pages that its sessions share. One forward pass at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/state_bytes.h"
#include "engine/text/tokenizer.h"
#include "engine/verify.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class Model;
class Session;
struct EngineImpl;

constexpr int kAllThatFit = -1;

struct EngineOptions {
  std::string model, tokenizer;  // as open_model() in model_file.h takes them
  // auto, cpu, cuda or cuda:N; placement.h says what each means
  std::string device = "auto";
  // How many layers run on the device: the last ones, and the logits with them. The layers before
  // them run on the CPU.
  int gpu_layers = kAllThatFit;
  // At most; 0: as many as there are physical cores that the affinity mask and the cgroup quota
  // leave to this process. Fewer work where that is faster, unless `threads_fixed` says that it has
  // to be exactly this number.
  int threads = 0;
  bool threads_fixed = false;
  // Positions of a session; 0: the model's own context length. More than that gives a notice, and
  // Error(usage) where positions are a table.
  int context = 0;
  // How positions are stretched, instead of what the file says: none, or linear:F, dynamic:F,
  // yarn:F for F times the model's own context, which is then its context. Empty: as the file says.
  std::string rope_scaling;
  // How many sessions a device is to have pages for, and of how many tokens of one pass at most the
  // logits are wanted, so that it keeps memory for them (65: the widest check of a draft). The CPU
  // takes memory when it is needed.
  int sessions = 1, outputs = 65;
  Format kv = Format::f16;  // one of kKvTypes
  // The next two are about .quipu files: when the sums of the tensors are checked, and whether the
  // tensors are read into memory (of huge pages) instead of being mapped.
  Verify verify = Verify::never;
  bool copy = false;
  // Told in one line what the user did not ask for: a conversion in memory, the CPU instead of a
  // device.
  std::function<void(const std::string&)> notice;
  // Whether it is worth a notice that there is no device, although nobody asked for one.
  bool verbose = false;
  // Told while the weights travel to a device how many bytes of them have arrived.
  std::function<void(uint64_t done, uint64_t all)> upload;
};

// Random weights of a well-known shape, so that speed can be learned before anything is downloaded.
struct ShapeOptions {
  std::string shape;  // "llama-3.2-1b", "llama-3.1-8b", "smollm-135m", ..., see shape_names()
  Format format = Format::q4;
};
std::vector<std::string> shape_names();

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Throws Error: bad_file, io, memory (need and have are named), device, usage.
  static std::shared_ptr<Engine> open(const EngineOptions& options);
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
