#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ggml-like-tensor/base/error.h"

namespace chaski {

namespace {

// Logits are wanted of so many tokens of a pass: enough for a fast pass, few enough that a row for
// each fits beside the model, whatever its vocabulary (EngineOptions::outputs).
constexpr int kPortion = 64;

// -ln of the probability that the logits give to `token`.
double surprise(std::span<const float> logits, TokenId token) {
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - most);
  return std::log(sum) - double(logits[size_t(token)] - most);
}

// Mean and variance of numbers that come one by one (Welford 1962).
class Statistics {
 public:
  void add(double x) {
    const double before = x - mean_;
    mean_ += before / double(++n_);
    squares_ += before * (x - mean_);
  }
  double mean() const { return mean_; }
  double variance() const { return n_ > 0 ? squares_ / double(n_) : 0; }

 private:
  int64_t n_ = 0;
  double mean_ = 0, squares_ = 0;
};

class Scoring {
 public:
  Scoring(Session& session, const OnScored& on_scored)
      : session_(session), tokenizer_(session.engine().tokenizer()), on_scored_(on_scored) {}

  void read(std::vector<TokenId> window) {
    const std::span<const TokenId> text = window;
    const size_t middle = text.size() / 2;
    if (tokenizer_.adds_bos()) window[0] = tokenizer_.bos();
    session_.rewind(0);
    for (size_t at = 0; at < text.size();) {
      const size_t end = at < middle ? middle : text.size();
      const size_t n = std::min(size_t(kPortion), end - at);
      const auto part = text.subspan(at, n);
      // What the last token foretells lies behind the window.
      if (at < middle)
        session_.extend(part, 0);
      else
        score(session_.extend(part, int(n)), text.subspan(at + 1));
      at += n, read_ += n;
      on_scored_(result_, read_);
    }
    ++result_.windows;
  }

  Perplexity result() const { return result_; }

 private:
  void score(std::span<const float> logits, std::span<const TokenId> next) {
    const size_t vocab = size_t(session_.engine().vocab_size());
    for (size_t i = 0; i < std::min(logits.size() / vocab, next.size()); ++i) {
      surprises_.add(surprise(logits.subspan(i * vocab, vocab), next[i]));
      result_.bytes += tokenizer_.piece(next[i]).size();
      ++result_.scored;
    }
    result_.mean = surprises_.mean(), result_.variance = surprises_.variance();
  }

  Session& session_;
  const Tokenizer& tokenizer_;
  const OnScored& on_scored_;
  Statistics surprises_;
  Perplexity result_;
  uint64_t read_ = 0;
};

}  // namespace

double Perplexity::perplexity() const { return std::exp(mean); }

double Perplexity::standard_error() const {
  return scored > 1 ? perplexity() * std::sqrt(variance / double(scored - 1)) : 0;
}

double Perplexity::bits_per_byte() const {
  return bytes > 0 ? mean * double(scored) / std::log(2.0) / double(bytes) : 0;
}

Perplexity perplexity(Session& session, std::span<const TokenId> tokens, int window, int windows,
                      const OnScored& on_scored) {
  ENSURE(window >= kLeastWindow && windows <= windows_of(tokens.size(), window), "whole windows");
  Scoring scoring(session, on_scored);
  for (int i = 0; i < windows; ++i) {
    const auto part = tokens.subspan(size_t(i) * size_t(window), size_t(window));
    scoring.read({part.begin(), part.end()});
  }
  return scoring.result();
}

}  // namespace chaski
