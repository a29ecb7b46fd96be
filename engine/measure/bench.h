// Measures how fast a model runs on this machine, compared with the machine's limits, for
// `chaski bench`. The tokens are arbitrary. On the CPU only forward passes are timed, without
// sampling; a device also draws a token after each pass, as it does when it generates text.
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
  std::vector<int> prompts = {512};  // each evaluated in one pass, from an empty context; 0: none
  int decode = 128;                  // tokens evaluated one by one; 0: none
  std::vector<int> depths = {0};     // tokens of context before each case except prompts
  // Passes with this many tokens and the logits of all of them, as in a verification pass.
  std::vector<int> widths;
  // `decode` passes with one token of each of this many sequences.
  std::vector<int> sequences;
  int repetitions = 5;   // after one warm-up round
  bool profile = false;  // whether to time the ops of every case
  // whether to time a matmul of the model's shape, and OpenBLAS's (sgemm.h)
  bool sgemm = false;
  bool limits = true;  // whether to measure the machine's limits, before and after
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);  // zeros for an empty list

constexpr const char* kInTiles = "_tiles";

// What the CPU with all its threads, or a device, can do per second.
struct Limits {
  double memory = 0;  // bytes that the CPU reads, or that a device reads and writes when it copies
  // Operations by the format of the weights; a product and its addition are two. Block formats use
  // products of 8-bit integers, "f32" products of floats, "f16" on a device those of tensor cores.
  // Formats with kInTiles after their name: in the matrix tiles of a CPU that has them.
  std::map<std::string, double> arithmetic;
  // Integer operations in passes of `tokens` tokens of a model with weights of this format. If the
  // weights are floats, only keys in blocks use integers, so it is the figure of q8.
  double integer(const std::string& format, int tokens) const;
  double floating(const std::string& format) const;
  bool measured() const { return memory > 0; }
};

// The work of a unit, as the ops count it.
struct Work {
  double bytes = 0;       // of weights, keys and values that were read
  double operations = 0;  // of all kinds
  double integer = 0;     // those on 8-bit integers
  void add(const Cost& cost, double units);
  // The time if only memory, or only arithmetic, took time.
  double memory_seconds(const Limits& l) const { return l.memory > 0 ? bytes / l.memory : 0; }
  double arithmetic_seconds(const Limits& l, const std::string& format, int tokens) const;
};

struct StepTime {
  StepName name;
  double calls = 0, seconds = 0;
  Work work;
};

// All figures are for one unit: a whole prompt, a decoded token, or a pass of several tokens.
struct BenchCase {
  enum class Kind { prompt, decode, width, sequences, sgemm, matmul } kind = Kind::prompt;
  std::string format, kv;  // of weights; of keys and values if there are any
  int tokens = 0;          // in the prompt, decoded, or in a pass (one of each sequence)
  int depth = 0;           // tokens of context before them
  int decoded = 0;         // tokens of each sequence if there are several
  Spread seconds;
  double memory = 0;  // bytes a second that the CPU reads between the rounds; 0: not measured
  Work cpu, device;
  double passes = 0, steps = 0, kernels = 0;
  std::vector<StepTime> profile;  // of one more round, longest first; empty unless requested

  const char* name() const;
  // of each sequence in a round
  int tokens_evaluated() const { return kind == Kind::sequences ? decoded : tokens; }
  int tokens_a_unit() const { return kind == Kind::decode ? 1 : tokens; }
  double rate() const { return tokens_a_unit() / seconds.median; }
  double bytes() const { return cpu.bytes + device.bytes; }
  double operations() const { return cpu.operations + device.operations; }
};

struct MachineLimits {
  Limits cpu, device;  // only of those that run a layer
};

struct BenchResult {
  MachineLimits before, after;
  std::vector<BenchCase> cases;
  std::string sgemm_library;
  MachineLimits limits() const;  // the higher of the two
  // The same with the memory of the case, if that was measured.
  MachineLimits limits(const BenchCase& c) const;
};

// Called before each step that takes a while, with its name.
using BenchNote = std::function<void(const std::string& what)>;

// Measures every case with every engine. The engines differ only in the format of their KV cache.
// Throws Error(prompt_too_long) before anything is measured if a case does not fit into the
// context, and what Session::extend throws.
BenchResult bench(std::span<const std::shared_ptr<Engine>> engines, const BenchOptions& options,
                  const BenchNote& note);

}  // namespace chaski
