// What passes do, step by step: times, bytes and operations, summed by what a step is.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ggml-like-tensor/plan.h"

namespace chaski {

struct StepName {
  std::string op, weight;  // the first of its weights, without its layer: "matmul", "ffn_down"
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
  int passes = 0;      // of the model, in one part or two
  size_t n_steps = 0;  // of the CPU
  size_t kernels = 0;  // of a device, without draws

  // `seconds` of each step of one run; those behind the plan's own are of the draw.
  void add(const Plan& plan, const std::vector<double>& seconds, bool on_device);
};

}  // namespace chaski
