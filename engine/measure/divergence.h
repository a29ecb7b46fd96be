// How far a model is from the one it was made of, on a text: the Kullback-Leibler divergence of
// what both foretell, token by token. Both read the same windows in one pass (perplexity.h), so
// that no file of logits is needed. Unlike perplexity, divergence cannot get better by chance.
#pragma once
#include <optional>
#include <vector>

#include "engine/measure/perplexity.h"

namespace chaski {

// Of one token: sum of p ln(p / q) over the vocabulary, from the logits of both.
double divergence(std::span<const float> p, std::span<const float> q);

// How often a token that is drawn from q is right where p is asked, p and q divided by a
// temperature: if p's draw with the same noise has to be the same one, as draw_all() has
// it; and by the rule of Leviathan et al. 2023, which keeps it with probability min(1, p / q).
struct SameDraws {
  double coupled, residual;
};
SameDraws same_draws(std::span<const float> p, std::span<const float> q, double temperature);

// Where a token was foretold.
struct TokenDivergence {
  double kl;
  TokenId token;                // that comes
  TokenId base_top, model_top;  // the likeliest
};

struct Divergence {
  Perplexity base, model;
  // Of each scored token, window by window: scored_in(window) of each.
  std::vector<TokenDivergence> places;
  Average kl;        // of each scored token: sum of p ln(p / q) over the vocabulary, p the base's
  Average same_top;  // 1 where both have the same likeliest token, 0 elsewhere
  Average square;    // (q - p)^2 of the token that comes
  Average floor;     // as kl, of the base's twin; no numbers without one
  Average coupled, residual;  // same_draws(), where it was asked for

  double rms() const;                 // root of the mean square
  double rms_standard_error() const;  // 0 where the root is 0
};

// Throws Error(usage), which names the first difference, unless both cut `text` into the same
// tokens out of the same vocabulary; Error(bad_file) if one has no tokenizer.
void expect_same_tokens(const Engine& base, const Engine& model, std::string_view text);

double median_kl(const Divergence& divergence);  // 0 of no places

// What both go on with when each takes its likeliest token.
struct Continuation {
  std::vector<TokenId> same;  // as far as they agree
  // The first on which they do not; none if they agree to the end.
  std::optional<std::pair<TokenId, TokenId>> base_and_model;
};
// Of at most `tokens` tokens behind `prompt`, or until the model's text ends. The sessions are as
// divergence() takes them, and have room. Throws what Session::extend throws.
Continuation greedy_continuation(Session& base, Session& model, std::span<const TokenId> prompt,
                                 int tokens);

// Told after each portion what is known so far, and how many tokens of all windows were read.
using OnCompared = std::function<void(const Divergence& so_far, uint64_t read)>;

// Compares on the first `windows` windows of `tokens`. The sessions are of engines that
// expect_same_tokens() accepts; each has room for a window and forgets what it holds. `twin`,
// unless it is null, is the base computed otherwise: how far it is from the base is the noise in
// all figures. With a temperature, how often draws agree is among them. Throws what Session::extend
// throws.
Divergence divergence(Session& base, Session& model, Session* twin, std::span<const TokenId> tokens,
                      int window, int windows, const OnCompared& on_compared,
                      std::optional<double> temperature = std::nullopt);

}  // namespace chaski
