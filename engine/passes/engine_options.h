// What a model is opened with: its file, device, threads, context and the format of its KV cache.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/shelf/verify.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

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

}  // namespace chaski
