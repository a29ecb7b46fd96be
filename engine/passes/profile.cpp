#include "engine/passes/profile.h"

namespace chaski {

namespace {

std::string first_weight(const Graph& graph, const Node& node) {
  for (ValueId v : node.in) {
    const Weight* w = graph.values[size_t(v)].weight;
    if (!w) continue;
    const std::string& name = w->info.name;
    return name.starts_with("layer.") ? name.substr(name.find('.', 6) + 1) : name;
  }
  return "";
}

}  // namespace

int gathers_of(const Plan& plan) {
  int gathers = 0;
  for (const Step& step : plan.steps)
    for (size_t i = 0; i < step.gathers.size(); ++i)
      gathers += i == 0 || step.gathers[i].gather->message != step.gathers[i - 1].gather->message;
  return gathers;
}

void Profile::add(const Plan& plan, const std::vector<double>& seconds, bool on_device) {
  for (size_t i = 0; i < seconds.size(); ++i) {
    if (i >= plan.steps.size()) {
      StepProfile& p = steps[{on_device ? "draw" : "gather", "", on_device}];
      p.seconds += seconds[i], p.calls += on_device ? 1 : gathers_of(plan);
      continue;
    }
    const Step& step = plan.steps[i];
    StepProfile& p =
        steps[{name_of(step.op), first_weight(plan.graph(), plan.graph().nodes[i]), on_device}];
    const Cost cost = std::visit([&](const auto& op) { return op.cost(step.args); }, step.op);
    p.seconds += seconds[i], ++p.calls;
    p.cost.bytes += cost.bytes, p.cost.flops += cost.flops, p.cost.integer += cost.integer;
  }
  if (!on_device) n_steps += plan.steps.size();
}

}  // namespace chaski
