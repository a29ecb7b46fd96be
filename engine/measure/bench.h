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

#include "engine/passes/profile.h"
#include "engine/session/engine.h"

namespace chaski {

struct BenchOptions {
  std::vector<int> prompts = {512};  // each evaluated at once, from an empty context; 0: none
  int decode = 128;                  // tokens evaluated one by one; 0: none
  std::vector<int> depths = {0};     // tokens that stand before all cases but prompts
  // Passes of so many tokens with the logits of all of them, which is what the check of a draft
  // costs.
  std::vector<int> widths;
  // `decode` passes with one token of each of so many sequences.
  std::vector<int> sequences;
  int repetitions = 5;   // after one round that does not count
  bool profile = false;  // the ops of every case
  // a matmul of the model's shape, beside OpenBLAS's (sgemm.h)
  bool sgemm = false;
  bool limits = true;  // those of the machine are measured before and after
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);  // zeros for none

// What the CPU with all its threads, or a device, can do per second, measured in the same minute.
struct Limits {
  double memory = 0;  // bytes that the CPU reads, or that a device's copies read and write
  // Operations by the format of the weights; a product and its addition are two. Block formats need
  // products of 8-bit integers, "f32" products of floats, "f16" on a device those of tensor cores.
  std::map<std::string, double> arithmetic;
  // Of integer products in a model with weights of this format. Where the weights are floats it is
  // keys in blocks that need them, so it is the figure of q8.
  double integer(const std::string& format) const;
  double floating(const std::string& format) const;
  bool measured() const { return memory > 0; }
};

// What was done, as the ops account for it.
struct Work {
  double bytes = 0;       // read, of weights, keys and values
  double operations = 0;  // of all kinds
  double integer = 0;     // those among them that are on 8-bit integers
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
  int tokens = 0;          // of the prompt, decoded, or in a pass (one of each sequence)
  int depth = 0;           // tokens that stand before them
  int decoded = 0;         // tokens of each sequence, if there are several
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

// Called before whatever takes a while, with what it is.
using BenchNote = std::function<void(const std::string& what)>;

// Measures every case with every engine; the engines differ in their keys and values only. Throws
// Error(prompt_too_long) before anything is measured if a case does not fit into the context, and
// what Session::extend throws.
BenchResult bench(std::span<const std::shared_ptr<Engine>> engines, const BenchOptions& options,
                  const BenchNote& note);

}  // namespace chaski
