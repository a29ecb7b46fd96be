// How far a model is from the one it was made of, on a text: the Kullback-Leibler divergence of
// what both foretell, token by token. Both read the same windows in one pass (perplexity.h), so
// that no file of logits is needed. Unlike perplexity, divergence cannot get better by chance.
#pragma once
#include "engine/perplexity.h"

namespace chaski {

struct Divergence {
  Perplexity base, model;
  Average kl;        // of each scored token: sum of p ln(p / q) over the vocabulary, p the base's
  Average same_top;  // 1 where both have the same likeliest token, 0 elsewhere
  Average square;    // (q - p)^2 of the token that comes

  double rms() const;                 // root of the mean square
  double rms_standard_error() const;  // 0 where the root is 0
};

// Throws Error(usage), which names the first difference, unless both cut `text` into the same
// tokens out of the same vocabulary; Error(bad_file) if one has no tokenizer.
void expect_same_tokens(const Engine& base, const Engine& model, std::string_view text);

// Told after each portion what is known so far, and how many tokens of all windows were read.
using OnCompared = std::function<void(const Divergence& so_far, uint64_t read)>;

// Compares on the first `windows` windows of `tokens`. The sessions are of two engines that
// expect_same_tokens() accepts; each has room for a window and forgets what it holds. Throws what
// Session::extend throws.
Divergence divergence(Session& base, Session& model, std::span<const TokenId> tokens, int window,
                      int windows, const OnCompared& on_compared);

}  // namespace chaski
