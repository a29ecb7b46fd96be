// A model, ready to run: weights, tokenizer, backend, threads. Immutable once open, apart from the
// pool of KV pages that its sessions share. One forward pass at a time.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/verify.h"
#include "ggml-like-tensor/base/error.h"
#include "ggml-like-tensor/file/quipu.h"
#include "ggml-like-tensor/kv_layout.h"

namespace chaski {

class Session;
struct EngineImpl;

constexpr int kAllThatFit = -1;

struct EngineOptions {
  std::string model, tokenizer;  // as open_model() in model_file.h takes them
  // auto | cpu | cuda[:N]; cuda without a usable device: Error(device)
  std::string device = "auto";
  // the last so many layers, and the logits, run on the device, the first on the CPU: see
  // placement.h
  int gpu_layers = kAllThatFit;
  // 0: as many as the machine, the affinity mask and the cgroup quota allow
  int threads = 0;
  // exactly so many, whatever else runs on the machine; else at most, fewer where that is faster
  bool threads_fixed = false;
  // positions per session; 0: the model's own. More than the model's own: Error(usage)
  int context = 0;
  // How many sessions a device is to have pages for, and of how many tokens of one pass at most the
  // logits are wanted, so that it keeps memory for them (65: the widest check of a draft). The CPU
  // takes memory when it is needed.
  int sessions = 1, outputs = 65;
  Format kv = Format::f16;        // one of kKvTypes
  Verify verify = Verify::never;  // .quipu files: whether their sums are checked
  bool copy = false;              // .quipu files: read into memory of huge pages instead of mapped
  // one line each: conversion in memory, fall-backs
  std::function<void(const std::string&)> notice;
  // bytes of weights that are on the device
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
  // the same weights, other options
  std::shared_ptr<Engine> with(const EngineOptions& options) const;
  ~Engine();

  std::unique_ptr<Session> session();

  const Metadata& meta() const;
  const std::string& path() const;     // "(bundled)" for the bundled model
  const Tokenizer& tokenizer() const;  // Error(bad_file) if the model has none
  bool has_tokenizer() const;
  int vocab_size() const;
  int context_length() const;
  int batch_length() const;  // tokens of a pass, at most
  // measured, bytes per second: reads of the CPU, a device's copies; 0 if both run layers
  double memory_bandwidth() const;
  // "cpu", "cuda:0 (NVIDIA H200)", "cuda:0 (NVIDIA H200), 20 of 32 layers"
  std::string device() const;
  int threads() const;            // at most
  double threads_used() const;    // on the average of what was run so far
  std::string isa() const;        // "avx512vnni", ...
  uint64_t weight_bytes() const;  // read for one decoded token: every matmul weight once
  Format weight_format() const;   // of most of them
  std::string kv_type() const;    // as --kv names it
  uint64_t file_bytes() const;
  uint64_t kv_bytes_per_token() const;

  EngineImpl& impl() { return *impl_; }

 private:
  Engine();
  std::unique_ptr<EngineImpl> impl_;
};

}  // namespace chaski
