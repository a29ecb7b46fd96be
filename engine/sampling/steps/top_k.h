// Keeps the k candidates with the largest logits.
#pragma once
#include <tuple>

#include "engine/sampling/steps/step.h"

namespace chaski {

struct TopKStep {
  static constexpr const char* kName = "top-k";
  static constexpr StepKind kKind = StepKind::narrowing;
  static constexpr int kPlaceInHelp = 1, kPlaceOnDevice = 0;

  int top_k = 40;  // 0: all

  static constexpr auto parameters() {
    return std::tuple{parameter(&TopKStep::top_k, "--top-k", "K", at_least(0),
                                "draw from the K most probable tokens; 0: from all")};
  }
  bool changes() const { return top_k > 0; }
  void narrow(Candidates& c, const DrawPlace&) const { c.keep_first(size_t(top_k)); }
  // If this is the first step, the candidates need not be sorted to find these.
  int most_candidates() const { return top_k; }
  void put(PlainDraw& draw) const { draw.top_k = top_k; }
};

}  // namespace chaski
