// How far a model is from its base on a text: the Kullback-Leibler divergence of their predictions,
// token by token. Both read the same windows at the same time (perplexity.h), so no file of logits
// is needed. Unlike perplexity, divergence cannot improve by chance.
#pragma once
#include <optional>
#include <vector>

#include "engine/measure/perplexity.h"

namespace chaski {

// The divergence at one token: sum of p ln(p / q) over the vocabulary, from the logits of both.
double divergence(std::span<const float> p, std::span<const float> q);

// The probability that a draft token drawn from q is accepted by p, both at a temperature.
//   coupled   accepted if p's draw with the same noise is the same token (Pass::draw())
//   residual  accepted with probability min(1, p / q), the rule of Leviathan et al. 2023
struct SameDraws {
  double coupled, residual;
};
SameDraws same_draws(std::span<const float> p, std::span<const float> q, double temperature);

// The predictions of both models for one token.
struct TokenDivergence {
  double kl;
  TokenId token;                // the actual next token
  TokenId base_top, model_top;  // top-1
};

struct Divergence {
  Perplexity base, model;
  // One for each scored token, window by window: scored_in(window) per window.
  std::vector<TokenDivergence> places;
  Average kl;        // over scored tokens: sum of p ln(p / q) over the vocabulary, p is the base's
  Average same_top;  // 1 if both have the same top-1 token, else 0
  Average square;    // (q - p)^2 of the actual next token
  Average floor;     // kl of the base's twin; empty without one
  Average coupled, residual;  // same_draws(); empty without a temperature

  double rms() const;                 // root of the mean square
  double rms_standard_error() const;  // 0 if the root is 0
};

// Throws Error(usage), which names the first difference, unless both have the same vocabulary and
// tokenize `text` to the same tokens. Throws Error(bad_file) if one has no tokenizer.
void expect_same_tokens(const Engine& base, const Engine& model, std::string_view text);

double median_kl(const Divergence& divergence);  // 0 if there are no places

// How both continue a prompt if each takes its top-1 token.
struct Continuation {
  std::vector<TokenId> same;  // tokens on which both agree
  // The first tokens that differ; empty if they agree to the end.
  std::optional<std::pair<TokenId, TokenId>> base_and_model;
};
// Continues for at most `tokens` tokens after `prompt`, or until the text ends. The sessions are as
// for divergence(), and have room. Throws what Session::extend throws.
Continuation greedy_continuation(Session& base, Session& model, std::span<const TokenId> prompt,
                                 int tokens);

// Called after each portion with the results so far and the number of tokens read, of all windows.
using OnCompared = std::function<void(const Divergence& so_far, uint64_t read)>;

// Compares on the first `windows` windows of `tokens`. The sessions' engines have passed
// expect_same_tokens(); each session has room for a window, and its contents are dropped. `twin`,
// unless null, is the base with other numerics: its distance from the base is the noise floor of
// all figures. With a temperature, the acceptance rates of draws are measured too. Throws what
// Session::extend throws.
Divergence divergence(Session& base, Session& model, Session* twin, std::span<const TokenId> tokens,
                      int window, int windows, const OnCompared& on_compared,
                      std::optional<double> temperature = std::nullopt);

}  // namespace chaski
