// What a text has said already makes logits smaller, so that it says something else.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "engine/text/tokenizer/tokenizer.h"

namespace chaski {

// Of tokens that are among the last `window`; -1: among all.
struct Penalties {
  double repeat =
      1;  // > 1: positive logits are divided by it, others multiplied (Keskar et al. 2019)
  double presence = 0;   // taken away from the logit
  double frequency = 0;  // taken away as often as the token is there
  int window = 64;

  bool any() const { return repeat != 1 || presence != 0 || frequency != 0; }
};

// "Don't repeat yourself": where the text ends as it did before, the token that came next there
// loses multiplier * base^(length of the repetition - allowed), from `allowed` tokens on.
struct Dry {
  double multiplier = 0, base = 1.75;
  int allowed = 2, window = -1;  // of the last tokens; -1: of all
  std::vector<std::string> breakers = {"\n", ":", "\"",
                                       "*"};  // repetitions end at a token with one
};

void penalize(std::span<float> logits, std::span<const TokenId> history, const Penalties& p);
// `breaks`: by token.
void penalize(std::span<float> logits, std::span<const TokenId> history, const Dry& dry,
              const std::vector<bool>& breaks);

std::vector<bool> tokens_with(const Tokenizer& tokenizer, std::span<const std::string> texts);

}  // namespace chaski
