// Lowers the logits of tokens among the last `penalty_window` ones of the text.
#pragma once
#include <tuple>

#include "engine/sampling/steps/step.h"

namespace chaski {

struct PenaltiesStep {
  static constexpr const char* kName = "penalties";
  static constexpr StepKind kKind = StepKind::logits;
  static constexpr int kPlaceInHelp = 9;

  // > 1: positive logits are divided by it, others are multiplied (Keskar et al. 2019)
  double repeat_penalty = 1;
  double presence_penalty = 0;   // subtracted from the logit
  double frequency_penalty = 0;  // subtracted for each occurrence of the token
  int penalty_window = 64;       // -1: all tokens of the text

  static constexpr auto parameters() {
    return std::tuple{
        parameter(&PenaltiesStep::repeat_penalty, "--repeat-penalty", "X", above(0, 100),
                  "divide the logits of recent tokens by X; 1: off"),
        parameter(&PenaltiesStep::presence_penalty, "--presence-penalty", "X", from_to(-100, 100),
                  "subtract X from the logits of recent tokens"),
        parameter(&PenaltiesStep::frequency_penalty, "--frequency-penalty", "X", from_to(-100, 100),
                  "subtract X from a recent token's logit for each time it occurs"),
        parameter(&PenaltiesStep::penalty_window, "--repeat-last-n", "N", at_least(-1),
                  "number of recent tokens that the three penalties look at; -1: all")
            .refining()};
  }
  bool changes() const {
    return repeat_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  void change(std::span<float> logits, std::span<const TokenId> history) const;
};

}  // namespace chaski
