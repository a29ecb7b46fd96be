// Keeps logits within n standard deviations of the largest (Tang et al. 2024).
#pragma once
#include <cmath>
#include <tuple>

#include "engine/sampling/steps/step.h"

namespace chaski {

struct TopNSigmaStep {
  static constexpr const char* kName = "top-n-sigma";
  static constexpr StepKind kKind = StepKind::narrowing;
  static constexpr int kPlaceInHelp = 5;

  double top_n_sigma = 0;  // 0: all

  static constexpr auto parameters() {
    return std::tuple{
        parameter(&TopNSigmaStep::top_n_sigma, "--top-n-sigma", "N", at_least(0),
                  "draw from logits within N standard deviations of the largest; 0: from all")};
  }
  bool changes() const { return top_n_sigma > 0; }
  void narrow(Candidates& c, const DrawPlace&) const {
    double sum = 0, squares = 0;
    for (const Candidate& x : c.all()) sum += x.logit;
    const double count = double(c.all().size()), mean = sum / count;
    for (const Candidate& x : c.all()) squares += (x.logit - mean) * (x.logit - mean);
    const double least = c.largest() - top_n_sigma * std::sqrt(squares / count);
    c.remove_if([=](const Candidate& x) { return x.logit < least; });
  }
};

}  // namespace chaski
