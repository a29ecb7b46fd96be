#include "engine/measure/fleet_forecast.h"

#include <algorithm>

#include "engine/pages/page_table.h"
#include "engine/passes/placement.h"
#include "engine/passes/profile.h"
#include "engine/passes/rank_stage.h"
#include "engine/session/memory_need.h"

namespace chaski {

namespace {

// Decoding is predicted after a short text, as in speed_forecast.cpp.
constexpr int kFleetDepth = 64;

struct RankWork {
  double bytes = 0, operations = 0;  // of weights and pages; of arithmetic
  int gathers = 0;
  uint64_t received = 0;
};

RankWork rank_work(const Plan& plan, int rank) {
  RankWork work;
  for (const Step& step : plan.steps) {
    const Cost cost = std::visit([&](const auto& op) { return op.cost(step.args); }, step.op);
    work.bytes += cost.bytes, work.operations += cost.flops;
    for (const Step::Gathered& g : step.gathers)
      for (int r = 0; r + 1 < int(g.gather->first.size()); ++r)
        if (r != rank) work.received += part_bytes(g, r);
  }
  work.gathers = gathers_of(plan);
  return work;
}

// The bytes of the weights that the plan multiplies.
uint64_t weights_of_plan(const Plan& plan) {
  Graph multiplied = plan.graph();
  std::erase_if(multiplied.nodes,
                [](const Node& n) { return std::holds_alternative<GetRows>(n.op); });
  uint64_t bytes = 0;
  for (const Weight* w : weights_of(multiplied)) bytes += w->info.bytes();
  return bytes;
}

}  // namespace

FleetForecast forecast_fleet(const Model& model, Format kv, int context, int ranks,
                             const LinkSpeed& link, const std::optional<SpeedForecast>& alone) {
  const int layers = int(model.n_layers), prompt = std::min(kCpuBatch, context),
            after = std::min(kFleetDepth, context - 1);
  const std::vector<double> equal(size_t(ranks), 1);
  // The last rank has most of what cannot be divided evenly; rank 0 receives the logits.
  const uint64_t least = least_bytes_of(link.latency, ranks);
  RankShare last(ranks - 1, equal, least), first(0, equal, least);
  const ImaginedPass decode(model, layers, kv, after, after + 1, 1, &last),
      decode_first(model, layers, kv, after, after + 1, 1, &first),
      decode_alone(model, layers, kv, after, after + 1, 1),
      read(model, layers, kv, 0, prompt, 1, &last),
      read_first(model, layers, kv, 0, prompt, 1, &first),
      read_alone(model, layers, kv, 0, prompt, 1);
  const RankWork most = rank_work(decode.plan(), ranks - 1),
                 receives = rank_work(decode_first.plan(), 0),
                 all = rank_work(decode_alone.plan(), 0),
                 most_read = rank_work(read.plan(), ranks - 1),
                 receives_read = rank_work(read_first.plan(), 0),
                 all_read = rank_work(read_alone.plan(), 0);
  const auto time_of_gathers = [&](const RankWork& work) {
    return work.gathers * link.latency + double(work.received) / link.bytes_a_second;
  };
  FleetForecast f;
  f.ranks = ranks;
  f.weights = weights_of_plan(decode.plan());
  const StateLayout states = states_of(model, all_layers(model), kv, &last);
  const std::vector<int64_t> pages = pages_of_session(states.pools, context, prompt);
  for (size_t i = 0; i < pages.size(); ++i)
    f.states += PageMemory{states.pools[i].page_bytes, !states.pools[i].recurrent}.bytes(pages[i]);
  f.gathers = ranks > 1 ? receives.gathers : 0, f.received = receives.received;
  if (!alone || ranks == 1) {
    f.speed = alone;
    return f;
  }
  f.speed.emplace();
  f.speed->decode = 1 / (most.bytes / all.bytes / alone->decode + time_of_gathers(receives));
  f.speed->prompt = prompt / (prompt * most_read.operations / all_read.operations / alone->prompt +
                              time_of_gathers(receives_read));
  return f;
}

}  // namespace chaski
