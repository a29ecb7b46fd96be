// Keeps the smallest set with this probability (nucleus sampling, Holtzman et al. 2020).
#pragma once
#include <tuple>

#include "engine/sampling/steps/step.h"

namespace chaski {

struct TopPStep {
  static constexpr const char* kName = "top-p";
  static constexpr StepKind kKind = StepKind::narrowing;
  static constexpr int kPlaceInHelp = 2, kPlaceOnDevice = 1;

  double top_p = 0.95;  // 1: all

  static constexpr auto parameters() {
    return std::tuple{
        parameter(&TopPStep::top_p, "--top-p", "P", above(0, 1),
                  "draw from the smallest set of tokens with total probability P; 1: from all")};
  }
  bool changes() const { return top_p < 1; }
  void narrow(Candidates& c, const DrawPlace&) const {
    c.keep_first(c.count_of_sum(top_p * c.sum()));
  }
  void put(PlainDraw& draw) const { draw.top_p = top_p; }
};

}  // namespace chaski
