// How fast a model runs here, beside what the machine allows: the loops behind `chaski bench`.
// Tokens are made up. On the CPU nothing is sampled and only forward passes are timed; a device
// draws a token after each, as it does when text is made.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/bench/profile.h"
#include "engine/engine.h"

namespace chaski {

struct BenchOptions {
  std::vector<int> prompts = {512};  // each evaluated at once, from an empty context; 0: none
  int decode = 128;                  // tokens evaluated one by one; 0: none ...
  std::vector<int> depths = {0};     // ... after each of these
  // passes of so many tokens, all their logits wanted: what a speculative check costs
  std::vector<int> widths;
  // so many sequences side by side, a token of each in a pass, `decode` passes
  std::vector<int> sequences;
  int repetitions = 5;   // after one round that does not count
  bool profile = false;  // the ops of every case
  // a matmul of the model's shape, beside OpenBLAS's (bench_sgemm.h)
  bool sgemm = false;
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);  // zeros for none

// What the CPU or a device does at most, measured in the same minute, by all of it together. Of the
// CPU: bytes read; of a device: bytes a copy reads and writes. A product and its addition are two
// operations.
struct Limits {
  double memory = 0;
  // by format of weights: 8-bit products as it needs them, or "f32", or tensor cores' "f16"
  std::map<std::string, double> arithmetic;
  double integer(const std::string& format) const;  // of float formats: what q8 keys need
  double floating(const std::string& format) const;
  bool measured() const { return memory > 0; }
};

// What is read of weights, keys and values, as the ops account for it, and computed; `integer`:
// operations on 8-bit integers among them.
struct Work {
  double bytes = 0, operations = 0, integer = 0;
  void add(const Cost& cost, double units);
  // The time it would take if only memory, or only arithmetic, took time.
  double memory_seconds(const Limits& l) const { return l.memory > 0 ? bytes / l.memory : 0; }
  double arithmetic_seconds(const Limits& l, const std::string& format) const;
};

struct StepTime {
  StepName name;
  double calls = 0, seconds = 0;
  Work work;
};

// All figures are of one unit: a whole prompt, a decoded token, a pass of several tokens.
struct BenchCase {
  enum class Kind { prompt, decode, width, sequences, sgemm, matmul } kind = Kind::prompt;
  std::string format, kv;  // of weights; of keys and values, if there are any
  int tokens = 0;          // of the prompt, decoded one by one, or at once
  int depth = 0;           // tokens before them
  int decoded = 0;         // by each of several sequences
  Spread seconds;
  Work cpu, device;
  double passes = 0, steps = 0, kernels = 0;
  std::vector<StepTime> profile;  // of one more round, longest first, if asked for

  const char* name() const;
  // of a sequence, in a round
  int tokens_evaluated() const { return kind == Kind::sequences ? decoded : tokens; }
  int tokens_a_unit() const { return kind == Kind::decode ? 1 : tokens; }
  double rate() const { return tokens_a_unit() / seconds.median; }
  double bytes() const { return cpu.bytes + device.bytes; }
  double operations() const { return cpu.operations + device.operations; }
};

struct MachineLimits {
  Limits cpu, device;  // of what runs a layer
};

struct BenchResult {
  MachineLimits before, after;
  std::vector<BenchCase> cases;
  std::string sgemm_library;
  MachineLimits limits() const;  // the better of the two
};

// before each step that takes a while
using BenchNote = std::function<void(const std::string& what)>;

// Every case with every engine, which differ in their keys and values only. Throws
// Error(prompt_too_long) before the first if one does not fit into the context, and what
// Session::extend throws.
BenchResult bench(std::span<const std::shared_ptr<Engine>> engines, const BenchOptions& options,
                  const BenchNote& note);

}  // namespace chaski
