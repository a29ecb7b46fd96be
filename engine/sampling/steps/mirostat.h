// Version 2 of Mirostat (Basu et al. 2021), which replaces the narrowing steps: it keeps the
// surprise of the drawn tokens near a target. It is no step, because a draw changes its limit for
// the next one; Sampler::draw_mirostat() has the algorithm.
#pragma once
#include <tuple>

#include "engine/sampling/steps/step.h"

namespace chaski {

struct Mirostat {
  static constexpr int kPlaceInHelp = 8;
  static constexpr const char* kSwitch = "--mirostat 2";

  int mirostat = 0;  // 2: version 2; 0: off
  double mirostat_target = 5, mirostat_rate = 0.1;

  static constexpr auto parameters() {
    return std::tuple{parameter(&Mirostat::mirostat, "--mirostat", "N", from_to(0, 2),
                                "2: use Mirostat 2 instead of top-k, top-p and the like; 0: off"),
                      parameter(&Mirostat::mirostat_target, "--mirostat-ent", "X", above(0),
                                "Mirostat: target surprise in bits")
                          .refining(),
                      parameter(&Mirostat::mirostat_rate, "--mirostat-lr", "X", above(0, 1),
                                "Mirostat: learning rate")
                          .refining()};
  }
  bool changes() const { return mirostat != 0; }
};

}  // namespace chaski
