// Predicts memory and speed of a model that several machines compute together (docs/fleet.md). The
// work of a rank and the bytes of its gathers are counted in its plan. The time of a pass is that
// of one machine, in proportion to the work, plus the gathers.
#pragma once
#include <optional>

#include "engine/measure/speed_forecast.h"

namespace chaski {

struct LinkSpeed {
  double bytes_a_second = 0, latency = 0;  // seconds from one machine to another
};

struct FleetForecast {
  int ranks = 1;
  // Of the rank that has most.
  uint64_t weights = 0, states = 0;
  // Of a token of decoding: gathers, and the bytes that rank 0 receives.
  int gathers = 0;
  uint64_t received = 0;
  std::optional<SpeedForecast> speed;  // if that of one machine is known
};

// `alone`: the speed of one machine that has all weights in memory, if it is known. All machines
// are as fast.
FleetForecast forecast_fleet(const Model& model, Format kv, int context, int ranks,
                             const LinkSpeed& link, const std::optional<SpeedForecast>& alone);

}  // namespace chaski
