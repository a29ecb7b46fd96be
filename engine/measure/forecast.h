// What it would be like to run a model, told before it is read: memory by part, what the machine
// has, and speed. The functions are those by which an engine is opened (memory_need.h).
#pragma once
#include <optional>

#include "engine/measure/speed_forecast.h"
#include "engine/session/memory_need.h"

namespace chaski {

struct ForecastOptions {
  EngineOptions engine;
  std::optional<ShapeOptions> shape;             // in place of a model
  bool anew = false;                             // speeds that were kept are measured again
  std::function<void(const std::string&)> note;  // called before something is measured
};

struct Forecast {
  std::string path, kind;
  bool has_tokenizer = true;  // without one run and chat have no text; random weights need none
  bool mapped = false;        // weights stay in the file; the system reads them as they are needed
  int context = 0, own_context = 0, threads = 0;
  Format kv = Format::f16;
  int layers = 0, cpu_layers = 0;

  // Bytes on the CPU's side: weights, states of a full context, the largest pass, and what the
  // program and the tokenizer hold already.
  uint64_t weights = 0, states = 0, activations = 0, program = 0;
  uint64_t sum() const { return weights + states + activations + program; }
  std::optional<uint64_t> have;   // that this process can get besides what it holds
  std::optional<uint64_t> pages;  // of these, in addresses it has already
  // Bytes that a device has to hold, and has. 0 without one.
  uint64_t device_needs = 0, device_has = 0;

  bool fits = true;          // a context that is full
  bool starts = true;        // at all: `chaski run` is not refused for want of memory
  bool weights_stay = true;  // those mapped are not read from the disk for every token
  int longest_context = 0;   // that fits, up to the model's own or what was asked for
  std::vector<Remedy> ways;  // to make it fit, if it does not

  // Not told of layers on a device, nor of a model whose weights do not fit.
  std::optional<SpeedForecast> speed;
  uint64_t bytes_a_token = 0;        // of weights
  double bandwidth = 0;              // bytes per second of memory, as measured with so many threads
  double decode_at_the_end() const;  // tokens per second, at most, when the context is full
};

// Bytes that weights may have so that the model runs in `memory` on the CPU, by the options'
// context and keys and values: what those, the largest pass of 16 threads and the program do not
// take, and a sixteenth less. The same on every machine. Throws Error(memory) if they take all.
uint64_t room_for_weights(const ModelSource& source, const EngineOptions& options, uint64_t memory);

// Throws what opening an engine would throw but for memory of the CPU.
Forecast forecast(const ForecastOptions& options);

}  // namespace chaski
