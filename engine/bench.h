// How fast a model runs here, beside what the memory allows: the loops behind `chaski bench`. Tokens are made up and nothing is
// sampled: only forward passes are timed.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace chaski {

struct BenchOptions {
  int prompt = 512;     // tokens evaluated at once, from an empty context
  int decode = 128;     // tokens evaluated one by one, ...
  int depth = 0;        // ... after this many
  int repetitions = 5;  // after one round that does not count
  std::vector<int> widths;  // passes of so many tokens at once, all their logits wanted: what a speculative check costs
  bool profile = false;     // of the decode step, by op
};

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);  // zeros for none

struct WidthTime {
  int tokens = 0;
  Spread seconds;  // of one pass
};
struct OpTime {
  std::string op;
  int calls = 0;
  double seconds = 0, bytes = 0, flops = 0;  // of one decode step
};

struct BenchResult {
  Spread prompt_rate, decode_rate;  // tokens per second
  double prompt_flops = 0;          // per second, of the matmuls, at the median
  uint64_t decode_bytes = 0;        // read for one token: weights, and keys and values at the middle of the decoded stretch
  double read_rate = 0;             // bytes per second, at the median
  double bandwidth_before = 0, bandwidth_after = 0;  // what the machine reads (bandwidth.h)
  std::vector<WidthTime> widths;
  std::vector<OpTime> profile;      // longest first
  double bandwidth() const { return bandwidth_before > bandwidth_after ? bandwidth_before : bandwidth_after; }
  // Above 1 for weights that fit into the caches: they are not read from memory.
  double share() const { return bandwidth() > 0 ? read_rate / bandwidth() : 0; }
};

using BenchNote = std::function<void(const std::string& what)>;  // before each step that takes a while

// 0 prompt or decode tokens: that part is left out. Throws what Session::extend throws.
BenchResult bench(Engine& engine, const BenchOptions& options, const BenchNote& note);

}  // namespace chaski
