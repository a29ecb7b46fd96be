// DRY ("don't repeat yourself") lowers the logits of tokens that would continue a repetition. If
// the text ends with n tokens that also occur earlier, the token that follows them there loses
// dry_multiplier * dry_base ^ (n - dry_allowed), from n = dry_allowed on.
#pragma once
#include <string>
#include <tuple>
#include <vector>

#include "engine/sampling/steps/step.h"

namespace chaski {

struct DryStep {
  static constexpr const char* kName = "dry";
  static constexpr StepKind kKind = StepKind::logits;
  static constexpr int kPlaceInHelp = 10;
  // For each token of the vocabulary whether a repetition ends at it.
  using State = std::vector<bool>;

  double dry_multiplier = 0, dry_base = 1.75;  // multiplier 0: off
  int dry_allowed = 2, dry_window = -1;        // -1: all tokens of the text
  // A repetition ends at a token that contains one of these texts.
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};

  static constexpr auto parameters() {
    return std::tuple{
        parameter(
            &DryStep::dry_multiplier, "--dry-multiplier", "X", from_to(0, 100),
            "DRY: penalty for a token that continues a repetition, X * base ^ (length - allowed)"),
        parameter(&DryStep::dry_base, "--dry-base", "X", from_to(1, 100),
                  "DRY: base of the penalty")
            .refining(),
        parameter(&DryStep::dry_allowed, "--dry-allowed-length", "N", at_least(0),
                  "DRY: penalize repetitions of at least N tokens")
            .refining(),
        parameter(&DryStep::dry_window, "--dry-penalty-last-n", "N", at_least(-1),
                  "DRY: search the last N tokens for repetitions; -1: all")
            .refining(),
        parameter(
            &DryStep::dry_breakers, "--dry-sequence-breaker", "TEXT", {},
            "DRY: a repetition ends at this text; may be repeated; none: at no text (default: "
            "line end, colon, quote and star)")
            .refining()};
  }
  bool changes() const { return dry_multiplier != 0; }
  State prepare(const Tokenizer* tokenizer) const;
  void change(std::span<float> logits, std::span<const TokenId> history, const State& breaks) const;
};

}  // namespace chaski
