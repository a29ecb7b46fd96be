// How well a model foretells a text: perplexity as llama.cpp's llama-perplexity counts it, so that
// figures compare. The tokens of the text are cut into windows that do not overlap; each window is
// read on its own, with the token that begins a text (BOS) in its first place if the model adds
// one. Scored are the tokens behind the middle of the window: those that are foretold from at least
// half a window of text.
#pragma once
#include <cstdint>
#include <functional>
#include <span>

#include "engine/session.h"

namespace chaski {

constexpr int kLeastWindow = 4;  // tokens; shorter ones would hardly score any

struct Perplexity {
  int windows = 0;      // that were read
  int64_t scored = 0;   // tokens
  uint64_t bytes = 0;   // of text that the scored tokens stand for
  double mean = 0;      // -ln p of a scored token, on the average
  double variance = 0;  // of the same

  double perplexity() const;      // e to the mean
  double standard_error() const;  // of the perplexity; 0 for fewer than two tokens
  double bits_per_byte() const;   // what the scored text would come to, compressed; 0 without bytes
};

// How many whole windows a text of so many tokens has.
inline int windows_of(size_t tokens, int window) { return int(tokens / size_t(window)); }

// Told after each pass what is known so far, and how many tokens of all windows were read.
using OnScored = std::function<void(const Perplexity& so_far, uint64_t read)>;

// Scores the first `windows` windows of `tokens`. The session has room for a window, and forgets
// what it holds. Throws what Session::extend throws.
Perplexity perplexity(Session& session, std::span<const TokenId> tokens, int window, int windows,
                      const OnScored& on_scored);

}  // namespace chaski
