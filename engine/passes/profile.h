// What passes do, step by step: times, bytes and operations, summed by what a step is.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ggml-like-tensor/plan.h"

namespace chaski {

struct StepName {
  // "matmul" and "ffn_down": the op, and the first of its weights without its layer.
  std::string op, weight;
  bool on_device = false;
  auto operator<=>(const StepName&) const = default;
};

struct StepProfile {
  double seconds = 0;
  Cost cost;
  int calls = 0;
};

struct Profile {
  std::map<StepName, StepProfile> steps;
  int passes = 0;      // through all layers, whether the CPU, a device or both run them
  size_t n_steps = 0;  // that the CPU did
  size_t kernels = 0;  // that a device started, without those that draw

  // Adds one run of a plan. `seconds` are those of its steps; if there is one more, it is the
  // draw's.
  void add(const Plan& plan, const std::vector<double>& seconds, bool on_device);
};

}  // namespace chaski
