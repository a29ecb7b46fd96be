// Perplexity on a text, computed as llama.cpp's llama-perplexity does, so that figures are
// comparable. The tokens are cut into windows that do not overlap. Each window is read separately;
// its first token is replaced by BOS if the model adds one. Only tokens after the middle of the
// window are scored, so each is predicted from at least half a window of text.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/session/session.h"

namespace chaski {

constexpr int kLeastWindow = 4;  // tokens; a shorter window would score almost none

// Running mean and variance (Welford 1962).
struct Average {
  int64_t count = 0;
  double mean = 0, squares = 0;  // squares: the sum of (x - mean)^2

  void add(double x) {
    const double before = x - mean;
    mean += before / double(++count);
    squares += before * (x - mean);
  }
  double standard_error() const;  // of the mean; 0 with fewer than two numbers
};

struct Perplexity {
  int windows = 0;     // read
  uint64_t bytes = 0;  // of the scored tokens' text
  Average surprise;    // -ln p of each scored token

  void add(double surprise_of_token, std::string_view piece) {
    surprise.add(surprise_of_token);
    bytes += piece.size();
  }
  int64_t scored() const { return surprise.count; }  // tokens
  double perplexity() const;                         // e to the mean surprise
  double standard_error() const;                     // of the perplexity
  double bits_per_byte()
      const;  // size of the scored text if compressed by the model; 0 without bytes
};

// The number of whole windows in a text.
inline int windows_of(size_t tokens, int window) { return int(tokens / size_t(window)); }

// The number of scored tokens in a window.
inline int scored_in(int window) { return window - window / 2 - 1; }

// Called for every scored token with the logits of each session for it, in the order of the
// sessions.
using OnScoredToken = std::function<void(std::span<const std::span<const float>>, TokenId token)>;
// Called after each portion with the number of tokens read, of all windows.
using OnRead = std::function<void(uint64_t tokens)>;

// Reads the first `windows` windows of `tokens` with every session, portion by portion. Each
// session has its own engine, all with the same tokenizer, and room for a window; its contents are
// dropped. Throws what Session::extend throws.
void read_windows(std::span<Session* const> sessions, std::span<const TokenId> tokens, int window,
                  int windows, const OnScoredToken& on_token, const OnRead& on_read);

// Called after each portion with the results so far and the number of tokens read, of all windows.
using OnScored = std::function<void(const Perplexity& so_far, uint64_t read)>;

// Scores the first `windows` windows of `tokens`. The session has room for a window; its contents
// are dropped. Throws what Session::extend throws.
Perplexity perplexity(Session& session, std::span<const TokenId> tokens, int window, int windows,
                      const OnScored& on_scored);

// ln of the sum of e^logit. -ln p of a token is this minus its logit.
double log_of_sum(std::span<const float> logits);

}  // namespace chaski
