// Keeps candidates at least `min_p` times as probable as the most probable one.
#pragma once
#include <tuple>

#include "engine/sampling/steps/step.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

struct MinPStep {
  static constexpr const char* kName = "min-p";
  static constexpr StepKind kKind = StepKind::narrowing;
  static constexpr int kPlaceInHelp = 3, kPlaceOnDevice = 2;

  double min_p = 0.05;  // 0: all

  static constexpr auto parameters() {
    return std::tuple{parameter(&MinPStep::min_p, "--min-p", "P", from_to(0, 1),
                                "drop tokens below P times the highest probability; 0: none")};
  }
  bool changes() const { return min_p > 0; }
  void narrow(Candidates& c, const DrawPlace&) const {
    const double most = c.largest();
    c.remove_if(
        [=, this](const Candidate& x) { return x.logit < most && exp64(x.logit - most) < min_p; });
  }
  void put(PlainDraw& draw) const { draw.min_p = min_p; }
};

}  // namespace chaski
