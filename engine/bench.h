// How fast a model runs here, beside what the machine allows: the loops behind `chaski bench`. Tokens are made up and nothing is
// sampled: only forward passes are timed.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace chaski {

struct BenchOptions {
  std::vector<int> prompts = {512};  // each evaluated at once, from an empty context; 0: none
  int decode = 128;                  // tokens evaluated one by one; 0: none ...
  std::vector<int> depths = {0};     // ... after each of these
  std::vector<int> widths;           // passes of so many tokens, all their logits wanted: what a speculative check costs
  int repetitions = 5;               // after one round that does not count
  bool profile = false;              // the ops of every case
  bool sgemm = false;                // a matmul of the model's shape, beside OpenBLAS's (bench_sgemm.h)
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);  // zeros for none

// What the machine does at most, measured in the same minute: bytes read and operations done per second, by all threads together.
struct Limits {
  double read = 0;
  std::map<std::string, double> arithmetic;  // by format of weights: 8-bit products as it needs them, or "f32". Additions count too
  double f32() const { return arithmetic.at("f32"); }
  double integer(const std::string& format) const;  // of float formats: what q8 keys need
};

struct OpTime {
  std::string op;
  double calls = 0, seconds = 0, bytes = 0, operations = 0;
};

// All figures are of one unit: a whole prompt, a decoded token, a pass of several tokens.
struct BenchCase {
  enum class Kind { prompt, decode, width, sgemm, matmul } kind = Kind::prompt;
  std::string format, kv;  // of weights; of keys and values, if there are any
  int tokens = 0;          // of the prompt, decoded one by one, or at once
  int depth = 0;           // tokens before them
  Spread seconds;
  double bytes = 0;                  // read of weights, keys and values, as the ops account for it
  double operations = 0, integer = 0;  // two for a product and its addition; those of 8-bit integers among them
  double passes = 0, steps = 0, barriers = 0;
  std::vector<OpTime> ops;           // of one more round, longest first, if asked for

  const char* name() const;
  int tokens_a_unit() const { return kind == Kind::decode ? 1 : tokens; }
  double rate() const { return tokens_a_unit() / seconds.median; }
  // The time it would take if only memory, or only arithmetic, took time.
  double memory_seconds(const Limits& l) const { return l.read > 0 ? bytes / l.read : 0; }
  double arithmetic_seconds(const Limits& l) const;
};

struct BenchResult {
  Limits before, after;
  std::vector<BenchCase> cases;
  std::string sgemm_library;
  Limits limits() const;  // the better of the two
};

using BenchNote = std::function<void(const std::string& what)>;  // before each step that takes a while

// Every case with every engine, which differ in their keys and values only. Throws Error(prompt_too_long) before the first if one does
// not fit into the context, and what Session::extend throws.
BenchResult bench(std::span<const std::shared_ptr<Engine>> engines, const BenchOptions& options, const BenchNote& note);

}  // namespace chaski
