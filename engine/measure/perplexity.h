// How well a model foretells a text: perplexity as llama.cpp's llama-perplexity counts it, so that
// figures compare. The tokens of the text are cut into windows that do not overlap; each window is
// read on its own, with the token that begins a text (BOS) in its first place if the model adds
// one. Scored are the tokens behind the middle of the window: those that are foretold from at least
// half a window of text.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/session/session.h"

namespace chaski {

constexpr int kLeastWindow = 4;  // tokens; shorter ones would hardly score any

// Numbers that come one by one (Welford 1962).
struct Average {
  int64_t count = 0;
  double mean = 0, squares = 0;  // squares: the sum of (x - mean)^2

  void add(double x) {
    const double before = x - mean;
    mean += before / double(++count);
    squares += before * (x - mean);
  }
  double standard_error() const;  // of the mean; 0 for fewer than two numbers
};

struct Perplexity {
  int windows = 0;     // that were read
  uint64_t bytes = 0;  // of text that the scored tokens stand for
  Average surprise;    // -ln p of each scored token

  void add(double surprise_of_token, std::string_view piece) {
    surprise.add(surprise_of_token);
    bytes += piece.size();
  }
  int64_t scored() const { return surprise.count; }  // tokens
  double perplexity() const;                         // e to the mean surprise
  double standard_error() const;                     // of the perplexity
  double bits_per_byte() const;  // what the scored text would come to, compressed; 0 without bytes
};

// How many whole windows a text of so many tokens has.
inline int windows_of(size_t tokens, int window) { return int(tokens / size_t(window)); }

// How many tokens of a window are scored.
inline int scored_in(int window) { return window - window / 2 - 1; }

// Told of every scored token the logits that each session has for it, in the order of the sessions.
using OnForetold = std::function<void(std::span<const std::span<const float>>, TokenId token)>;
// Told after each portion how many tokens of all windows were read.
using OnRead = std::function<void(uint64_t tokens)>;

// Reads the first `windows` windows of `tokens` with every session, portion by portion. The
// sessions are of engines of their own with the same tokenizer, have room for a window, and forget
// what they hold. Throws what Session::extend throws.
void read_windows(std::span<Session* const> sessions, std::span<const TokenId> tokens, int window,
                  int windows, const OnForetold& on_foretold, const OnRead& on_read);

// Told after each portion what is known so far, and how many tokens of all windows were read.
using OnScored = std::function<void(const Perplexity& so_far, uint64_t read)>;

// Scores the first `windows` windows of `tokens`. The session has room for a window, and forgets
// what it holds. Throws what Session::extend throws.
Perplexity perplexity(Session& session, std::span<const TokenId> tokens, int window, int windows,
                      const OnScored& on_scored);

// The ln of the sum of e to the power of each logit: -ln p of a token is that less its logit.
double log_of_sum(std::span<const float> logits);

}  // namespace chaski
