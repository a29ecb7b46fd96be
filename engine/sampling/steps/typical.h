// Keeps the smallest set with this probability of the tokens whose surprise is nearest to the
// entropy (locally typical sampling, Meister et al. 2023).
#pragma once
#include <algorithm>
#include <cmath>
#include <tuple>

#include "engine/sampling/steps/step.h"
#include "ggml-like-tensor/noise.h"

namespace chaski {

struct TypicalStep {
  static constexpr const char* kName = "typical";
  static constexpr StepKind kKind = StepKind::narrowing;
  static constexpr const char* kAlias = "typ-p";
  static constexpr int kPlaceInHelp = 4;

  double typical = 1;  // 1: all

  static constexpr auto parameters() {
    return std::tuple{parameter(
        &TypicalStep::typical, "--typical", "P", above(0, 1),
        "locally typical sampling: draw from the tokens of total probability P whose surprise is "
        "nearest to the mean; 1: from all")};
  }
  bool changes() const { return typical < 1; }
  void narrow(Candidates& c, const DrawPlace&) const {
    const double total = c.sum(), most = c.sorted()[0].logit, log_total = log64(total);
    const auto surprise = [=](const Candidate& x) { return most + log_total - x.logit; };
    double entropy = 0;
    for (const Candidate& x : c.sorted()) {
      const double weight = exp64(x.logit - most);
      if (weight > 0) entropy += weight / total * surprise(x);
    }
    const auto distance = [=](const Candidate& x) { return std::abs(surprise(x) - entropy); };
    std::vector<Candidate>& all = c.to_reorder();
    std::stable_sort(all.begin(), all.end(), [=](const Candidate& a, const Candidate& b) {
      return distance(a) < distance(b);
    });
    double before = 0;
    size_t n = 0;
    for (; n < all.size() && (n == 0 || before < typical * total); ++n)
      before += exp64(all[n].logit - most);
    all.resize(n);
  }
};

}  // namespace chaski
