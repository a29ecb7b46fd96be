// Predicts memory and speed of a model before its weights are read. It uses the same functions as
// Engine::open() (memory_need.h).
#pragma once
#include <optional>

#include "engine/measure/fleet_forecast.h"
#include "engine/measure/kv_loss.h"
#include "engine/measure/speed_forecast.h"
#include "engine/session/memory_need.h"

namespace chaski {

struct ForecastOptions {
  EngineOptions engine;
  std::optional<ShapeOptions> shape;             // instead of a model
  bool measure_again = false;                    // even if speeds are kept
  std::function<void(const std::string&)> note;  // called before something is measured
  // Also predict `ranks` machines with this link, and the number that decodes fastest.
  int ranks = 1;
  LinkSpeed link;
};

struct Forecast {
  std::string path, kind;
  bool has_tokenizer = true;  // run and chat need one; random weights do not
  bool mapped = false;        // weights stay in the file; the system reads them on demand
  int context = 0, own_context = 0, threads = 0;
  Format kv = Format::f16;
  std::optional<KvLoss> kv_loss;  // as it was measured with this model
  int layers = 0, cpu_layers = 0;

  // Bytes in host memory: weights, states of a full context, the largest pass, and what the program
  // and the tokenizer use already.
  uint64_t weights = 0, states = 0, activations = 0, program = 0;
  uint64_t recurrent = 0;         // bytes of the recurrent states of a sequence, of any length
  std::optional<uint64_t> have;   // that this process can get in addition
  std::optional<uint64_t> pages;  // that the machine still has for pages of this process
  // Bytes that are needed on a device, and free there. 0 without one.
  uint64_t device_needs = 0, device_has = 0;

  bool fits = true;          // whether a full context fits
  bool starts = true;        // whether `chaski run` starts; otherwise memory is too small
  bool weights_stay = true;  // false if mapped weights are read from the disk for every token
  // Set if experts of a mapped model are read from the file when they are chosen.
  struct Experts {
    uint64_t all = 0, bytes = 0;  // bytes of all experts, and of the memory for them
    double found = 0;             // the part of the chosen experts that is expected there
    bool uses_known = false;      // from earlier runs; otherwise all are chosen equally often
    uint64_t read_a_token = 0;    // bytes
    double file_bandwidth = 0;    // bytes per second, measured
  };
  std::optional<Experts> experts;
  // Set if weights of a mapped model without experts are read from the file for every token.
  struct Streamed {
    uint64_t a_pass = 0;        // bytes, which are not kept in memory
    uint64_t ring = 0;          // bytes of memory that they are read into
    double file_bandwidth = 0;  // bytes per second, measured
  };
  std::optional<Streamed> streamed;
  // Bytes of all in host memory.
  uint64_t sum() const {
    const Streamed read = streamed.value_or(Streamed());
    return weights - read.a_pass + read.ring + states + activations + program;
  }
  int longest_context = 0;   // that fits, up to the model's own or the requested one
  std::vector<Remedy> ways;  // to make the model fit if it does not
  std::string map;           // how its weights would stay in their file; empty if it fits

  // Empty for layers on a device. Also empty if memory is too small for the weights and chaski
  // cannot read them from the file in advance (see no_speed).
  std::optional<SpeedForecast> speed;
  std::string no_speed;        // why memory is too small for a forecast: "because ..."; or empty
  uint64_t bytes_a_token = 0;  // of weights
  double bandwidth = 0;        // of memory in bytes per second, measured with `threads`
  // Of 1, 2, ... machines, up to those of the options and at least until decoding is no longer
  // faster with one more. Empty unless several are asked for, or if the speed is unknown.
  std::vector<FleetForecast> fleet;
  double decode_at_the_end() const;  // tokens per second with a full context; an upper bound
};

// The bytes that are left for weights if the model is to run in `memory` on the CPU, with the
// options' context and format of keys and values. Subtracted are keys and values, the activations
// of the largest pass when 16 threads compute it, the program, and a reserve of a sixteenth of
// `memory`. The result is the same on every machine.
// Throws Error(memory) if nothing is left.
uint64_t room_for_weights(const ModelSource& source, const EngineOptions& options, uint64_t memory);

// Throws the errors of Engine::open(), except Error(memory) for too little host memory.
Forecast forecast(const ForecastOptions& options);

}  // namespace chaski
