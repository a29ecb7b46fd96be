// Excludes top choices: with `xtc_probability` a draw drops all candidates of at least
// `xtc_threshold`, except the least probable of them.
#pragma once
#include <algorithm>
#include <tuple>

#include "engine/sampling/steps/step.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

struct XtcStep {
  static constexpr const char* kName = "xtc";
  static constexpr StepKind kKind = StepKind::narrowing;
  static constexpr int kPlaceInHelp = 6;

  double xtc_probability = 0, xtc_threshold = 0.1;  // probability 0: off

  static constexpr auto parameters() {
    return std::tuple{parameter(&XtcStep::xtc_probability, "--xtc-probability", "P", from_to(0, 1),
                                "XTC: how often to remove all tokens above the threshold but the "
                                "least probable of them"),
                      parameter(&XtcStep::xtc_threshold, "--xtc-threshold", "P", from_to(0, 1),
                                "XTC: tokens above this probability may be removed")
                          .refining()};
  }
  bool changes() const { return xtc_probability > 0; }
  void narrow(Candidates& c, const DrawPlace& place) const {
    if (uniform(place.seed, place.position) >= xtc_probability) return;
    const double least = xtc_threshold * c.sum(), most = c.sorted()[0].logit;
    const auto all = c.sorted();
    const auto below = std::find_if(
        all.begin(), all.end(), [=](const Candidate& x) { return exp64(x.logit - most) < least; });
    if (below - all.begin() > 1) c.remove_first(size_t(below - all.begin()) - 1);
  }
};

}  // namespace chaski
