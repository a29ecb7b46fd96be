// Profiles passes: times, bytes and operations, summed by the op and weight of a step.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "ggml-like-tensor/plan.h"

namespace chaski {

struct StepName {
  // such as "matmul" and "ffn_down": the op, and its first weight without the layer
  std::string op, weight;
  bool on_device = false;
  auto operator<=>(const StepName&) const = default;
};

// How many messages a rank sends to each other one in a run of its plan.
int gathers_of(const Plan& plan);

struct StepProfile {
  double seconds = 0;
  Cost cost;
  int calls = 0;
};

struct Profile {
  std::map<StepName, StepProfile> steps;
  int passes = 0;      // through all layers, on the CPU, a device or both
  size_t n_steps = 0;  // on the CPU
  size_t kernels = 0;  // that a device started, without those that draw tokens

  // Adds one run of a plan. `seconds` has the time of each step, and of the draw or of the gathers
  // if there were any.
  void add(const Plan& plan, const std::vector<double>& seconds, bool on_device);
};

}  // namespace chaski
