// A model to a smaller one, offline. The recipe: matmul weights become `type`; what suffers keeps
// more: norms and biases f32, the position table its own format, tensors whose columns are not a
// multiple of the block f16, the head and embedding at least q8 when `type` has fewer bits, and any
// tensor whose relative squared error is over `keep_above` the next better type. Every choice is
// reported with its reason.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/model_file.h"

namespace chaski {

struct QuantizeOptions {
  Format type = Format::q4;
  int threads = 0;
  std::string tokenizer;
  double keep_above = 0.02;
};

// The names of the formats there are to choose from, fewest bits first.
std::vector<std::string> quantize_types();

struct QuantizedTensor {
  std::string name;
  Format from, to;
  uint64_t bytes_before = 0, bytes_after = 0;
  double error = 0;    // sum (x - x')^2 / sum x^2, 0 when nothing was lost
  std::string reason;  // why `to` is not options.type; empty if it is
};

struct QuantizeReport {
  std::vector<QuantizedTensor> tensors;
  uint64_t bytes_before = 0, bytes_after = 0, weights = 0;  // weights: encoded elements
  double seconds = 0, encode_seconds = 0;
};

// Atomic: `out` is whole or untouched. Same bytes for any number of threads. Throws Error(usage)
// for a type that cannot be encoded or out == in, Error(bad_file) for a non-finite weight (tensor
// and position named).
QuantizeReport quantize_model(const std::string& in, const std::string& out,
                              const QuantizeOptions& options, const OnProgress& progress);

}  // namespace chaski
