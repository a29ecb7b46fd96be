// The settings that a model is opened with: file, device, threads, context, KV format.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/shelf/keep_converted.h"
#include "engine/shelf/verify.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class Link;

constexpr int kAllThatFit = -1, kAllLayers = std::numeric_limits<int>::max();

struct EngineOptions {
  std::string model, tokenizer;  // as open_model() in model_file.h takes them
  // auto, cpu, cuda or cuda:N, as described in placement.h
  std::string device = "auto";
  // How many layers run on the device: the last ones, including the logits. The layers before them
  // run on the CPU.
  int gpu_layers = kAllThatFit;
  bool cpu_experts = false;  // the experts of these layers run on the CPU
  // The most threads. 0: one for each physical core that the affinity mask and the cgroup quota
  // allow this process. Fewer threads work when that is faster, unless `threads_fixed` is set.
  int threads = 0;
  bool threads_fixed = false;
  // Positions of a session; 0: the model's own context length. A longer context causes a notice, or
  // Error(usage) if the positions are in a table.
  int context = 0;
  // RoPE scaling that replaces the file's: none, or linear:F, dynamic:F or yarn:F, which multiply
  // the model's context by F. Empty: as in the file.
  std::string rope_scaling;
  // A device reserves pages for `sessions` sessions, and memory for the logits of `outputs` tokens
  // of a pass (65: the widest verification pass). The CPU takes memory when it is needed.
  int sessions = 1, outputs = 65;
  // Memory for keys and values beyond which pages that no session uses are dropped before new
  // memory is taken. 0: as much as `sessions` sessions of up to 8192 tokens take.
  uint64_t most_idle_bytes = 0;
  // The most memory for keys, values and recurrent states of all sessions of the CPU. One session
  // has its pages in any case. 0: no limit but that of the pools (engine.cpp).
  uint64_t most_state_bytes = 0;
  Format kv = Format::f16;  // one of kKvTypes
  // For .quipu files: when the checksums of the tensors are verified, and whether the tensors are
  // read into memory (huge pages) instead of being mapped.
  Verify verify = Verify::never;
  bool copy = false;
  // The most bytes of experts of a mapped model that stay in memory; the others are read from the
  // file when they are chosen (session/expert_memory.h). 0: as many as fit.
  uint64_t expert_memory = 0;
  // The most bytes of the layers' matrices of a mapped model without experts that stay in memory;
  // the others are read for every pass (session/stream_room.h). 0: as many as fit.
  uint64_t weight_memory = 0;
  // Whether a model in another format is kept as .quipu in the cache folder.
  KeepConverted keep_converted = 0;
  // Called with a line about something that the user did not ask for: a conversion, or the CPU
  // instead of a device. The engine may also call it when it is destroyed.
  std::function<void(const std::string&)> notice;
  // Called with a line before a wait for another process.
  std::function<void(const std::string&)> wait;
  // Whether a missing device causes a notice although --device is auto.
  bool verbose = false;
  // Called with progress in bytes while the weights are copied to a device.
  std::function<void(uint64_t done, uint64_t all)> upload;
  // The ranks that compute the model together (engine/session/follow.h), the number of the engine
  // on all of them, and how fast each rank is compared with the others; empty: equally fast. Null:
  // this process alone computes it.
  std::shared_ptr<Link> link;
  int link_engine = 0;
  std::vector<double> rank_speeds;
};

// With a tokenizer of its own, the model's files alone do not say what is opened.
inline KeepConverted kept_of(const EngineOptions& o) {
  return o.tokenizer.empty() ? o.keep_converted : 0;
}

// Random weights in the shape of a well-known model, to measure speed without downloading anything.
struct ShapeOptions {
  std::string shape;  // "llama-3.2-1b", "llama-3.1-8b", "smollm-135m", ..., see shape_names()
  Format format = Format::q4;
};
std::vector<std::string> shape_names();

}  // namespace chaski
